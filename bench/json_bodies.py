"""What reading and writing JSON costs, against orjson and numpy alone.

    python -m bench.json_bodies [--rounds 5] [--seconds 0.4] [--json FILE]

Both take turns, so ratios hold although the machine's speed drifts; in each round the fastest tenth of each counts.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import orjson

from app.codecs.json import predict_documents
from app.codecs.json.predict_documents import encode_predict
from app.codecs.json.writing import dumps
from app.core.inference import ModelSignature, TensorSpec
from app.protocols.open_inference.documents.json_documents import decode_data, encode_data, named_objects, parse
from app.server.memory import keep_freed_memory
from bench.support.machine import machine_line

Array = np.ndarray[Any, Any]

#: The line that a goal is about.
READ_IMAGE = "read V1 image [1,96,96,3]"


@dataclass(frozen=True, slots=True)
class Comparison:
    """`plain` is what the libraries cost, without a check; `ours` is what a request costs."""

    what: str
    size: int
    plain: Callable[[], object]
    ours: Callable[[], object]


def comparisons() -> Iterator[Comparison]:
    generator = np.random.default_rng(0)
    tiny = generator.random((1, 16), np.float32)
    digits = generator.random((8, 8, 8), np.float32)
    image = generator.random((1, 96, 96, 3), np.float32)
    pixels = (image * 255).astype(np.uint8)
    for name, array in (("tiny [1,16]", tiny), ("digits [8,8,8]", digits), ("image [1,96,96,3]", image)):
        yield read_v1(name, _compact({"instances": array}), array)
    yield read_v1("image, named", _compact({"inputs": {"x": image}}), image, lambda document: document["inputs"]["x"])
    yield read_v1("image by json.dumps", json.dumps({"instances": image.tolist()}).encode(), image)
    yield read_v1("pixels [1,96,96,3]", _compact({"instances": pixels}), pixels)
    for name, array in (("tiny [1,16]", tiny), ("image [1,96,96,3]", image)):
        yield read_v2(name, array)
    for name, array in (("tiny [1,4]", tiny[:, :4]), ("image [1,96,96,3]", image)):
        yield write_v1(name, array.copy())
        yield write_v2(name, array.copy())


def read_v1(
    name: str,
    body: bytes,
    array: Array,
    pick: Callable[[Any], Any] = lambda document: document["instances"],
) -> Comparison:
    signature = ModelSignature("serving_default", {"x": TensorSpec("x", array.dtype, (None, *array.shape[1:]))}, {})

    def ours() -> Array:
        return predict_documents.read(body, len(body)).inputs(signature)["x"]

    return _checked(
        Comparison(f"read V1 {name}", len(body), lambda: np.array(pick(orjson.loads(body)), array.dtype), ours), array
    )


def read_v2(name: str, array: Array) -> Comparison:
    spec = TensorSpec("x", array.dtype, (None, *array.shape[1:]))
    tensor = {"name": "x", "shape": array.shape, "datatype": "FP32", "data": array.reshape(-1)}
    body = _compact({"inputs": [tensor]})

    def plain() -> Array:
        return np.array(orjson.loads(body)["inputs"][0]["data"], array.dtype).reshape(array.shape)

    def ours() -> Array:
        ((_, found),) = named_objects(parse(body), "inputs")
        return decode_data(found["data"], spec, tuple(found["shape"]))

    return _checked(Comparison(f"read V2 {name}", len(body), plain, ours), array)


def write_v1(name: str, array: Array) -> Comparison:
    def plain() -> bytes:
        return _compact({"predictions": array})

    return Comparison(f"write V1 {name}", len(plain()), plain, lambda: encode_predict({"y": array}, by_row=True))


def write_v2(name: str, array: Array) -> Comparison:
    head = {"name": "y", "datatype": "FP32", "shape": list(array.shape)}

    def plain() -> bytes:
        return _compact({"model_name": "m", "outputs": [{**head, "data": array.reshape(-1)}]})

    def ours() -> bytes:
        return dumps({"model_name": "m", "outputs": [{**head, "data": encode_data(array)}]})

    return Comparison(f"write V2 {name}", len(plain()), plain, ours)


def in_turn(one: Comparison, seconds: float) -> tuple[float, float]:
    """Microseconds of both."""
    times: tuple[list[float], list[float]] = ([], [])
    repeats = max(1, 2000 // one.size)
    end_s = time.perf_counter() + seconds
    while not times[0] or time.perf_counter() < end_s:
        for taken, call in zip(times, (one.plain, one.ours), strict=True):
            start_s = time.perf_counter()
            for _ in range(repeats):
                call()
            taken.append((time.perf_counter() - start_s) / repeats * 1e6)
    plain, ours = (sorted(taken)[len(taken) // 20] for taken in times)
    return plain, ours


def measure(one: Comparison, rounds: int, seconds: float) -> list[float]:
    """The ratio of each round; prints the medians."""
    runs = [in_turn(one, seconds) for _ in range(rounds)]
    ratios = [ours / plain for plain, ours in runs]
    plain, ours = (median(each) for each in zip(*runs, strict=True))
    print(f"{one.what:28}{one.size:8}{plain:12.1f} us{ours:7.1f} us{median(ratios):8.2f}", flush=True)
    return ratios


def _compact(document: object) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


def _checked(one: Comparison, array: Array) -> Comparison:
    for call in (one.plain, one.ours):
        np.testing.assert_array_equal(call(), array, strict=True)
    return one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.4, help="for each line in each round")
    parser.add_argument("--json", type=Path, help="file for the ratios by round")
    options = parser.parse_args()
    keep_freed_memory()
    print(machine_line())
    print(f"{'':28}{'bytes':>8}{'orjson+numpy':>15}{'Ferry':>10}{'ratio':>8}")
    ratios = {one.what: measure(one, options.rounds, options.seconds) for one in comparisons()}
    if options.json:
        options.json.write_text(json.dumps({"read_image": ratios[READ_IMAGE], **ratios}))


if __name__ == "__main__":
    main()
