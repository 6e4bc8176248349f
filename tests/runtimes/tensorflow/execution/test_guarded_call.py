from collections.abc import Mapping

import numpy as np

from app.core.inference import Array
from app.core.values.value_kinds import Reach
from app.runtimes.tensorflow.execution.guarded_call import Call, guarded


def test_one_value_beyond_sends_the_call_to_plain() -> None:
    def named(name: str) -> Call:
        def call(_: Mapping[str, Array]) -> dict[str, Array]:
            return {"who": np.array([name])}

        return call

    call = guarded(named("variant"), named("plain"), ("x", "y"), Reach.FINITE)
    good, bad = np.ones(2, np.float32), np.float32([1, np.nan])
    assert call({"x": good, "y": good})["who"] == "variant"
    assert call({"x": good, "y": bad})["who"] == call({"x": bad, "y": good})["who"] == "plain"
