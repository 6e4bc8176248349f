"""Makes the models of this folder, and requests with the answers of the libraries themselves. Nothing runs it in CI.

python make.py tfdf        with tensorflow-decision-forests 1.12.0 and tensorflow 2.19.0, TF_USE_LEGACY_KERAS=1
python make.py ydf         with ydf 0.16.1, ydf-tf 2.21.0.post1 and tensorflow-cpu 2.21.0
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
ROWS = 24


def columns(rows: int, seed: int) -> dict[str, Any]:
    """People. Some incomes are missing, and one town in eight is none of those of the training."""
    rng = np.random.default_rng(seed)
    income = rng.lognormal(10, 1, rows).astype("float32")
    income[::7] = np.nan
    return {
        "age": rng.uniform(18, 90, rows).astype("float32"),
        "income": income,
        "kids": rng.integers(0, 5, rows),
        "town": np.where(rng.integers(0, 8, rows) == 0, f"town {seed}", rng.choice(["aa", "bb", "cc"], rows)),
    }


def score(people: dict[str, Any]) -> Any:
    income = np.log(np.nan_to_num(people["income"], nan=1e4))
    return people["age"] / 50 + income / 10 + (people["town"] == "aa") * 0.7 + people["kids"] * 0.1


def make_tfdf() -> Any:
    """Gradient-boosted trees of TensorFlow Decision Forests, two classes."""
    import pandas as pd  # noqa: PLC0415 - of that environment
    import tensorflow_decision_forests as tfdf  # noqa: PLC0415 - so is this

    people = columns(300, seed=0)
    frame = pd.DataFrame({**people, "label": (score(people) > 2.8).astype(int)})
    model = tfdf.keras.GradientBoostedTreesModel(num_trees=6, max_depth=4, verbose=0)
    model.fit(tfdf.keras.pd_dataframe_to_tf_dataset(frame, label="label"))
    model.save(str(FOLDER / "tfdf" / "1"))
    asked = pd.DataFrame({**columns(ROWS, seed=1), "label": 0})
    return model.predict(tfdf.keras.pd_dataframe_to_tf_dataset(asked, label="label"), verbose=0)


def make_ydf() -> Any:
    """A random forest of YDF, three classes."""
    import ydf  # noqa: PLC0415 - of that environment

    people = columns(300, seed=0)
    label = np.digitize(score(people), [2.4, 3.1]).astype(str)
    model = ydf.RandomForestLearner(label="label", num_trees=6, max_depth=5).train({**people, "label": label})
    model.to_tensorflow_saved_model(str(FOLDER / "ydf" / "1"), mode="tf")
    return model.predict(columns(ROWS, seed=1))


def main(kind: str) -> None:
    answers = {"tfdf": make_tfdf, "ydf": make_ydf}[kind]()
    asked = columns(ROWS, seed=1)
    rows = [{name: values[n].item() for name, values in asked.items()} for n in range(ROWS)]
    lines = [json.dumps({"row": row, "answer": answer.tolist()}) for row, answer in zip(rows, answers, strict=True)]
    (FOLDER / kind / "answers.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
