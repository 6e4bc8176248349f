"""The workloads, in their order: a model, the form of its requests, the expected answers, and how long each is run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Workload:
    """`wire` is "json" or "binary": which of a peer's forms carries the inputs. `input`, `output` name tensors.

    The closed loop keeps `connections` busy for `seconds` in each of `rounds`; the open loop has `open_rounds`. If
    `traced`, each request of the closed loop has a `traceparent` and an `x-request-id` of its own.
    """

    name: str
    model: str
    wire: str
    input: str
    output: str
    about: str
    connections: int = 64
    seconds: float = 2.0
    rounds: int = 5
    open_rounds: int = 0
    traced: bool = False


#: Those with goals first: what was measured stays where a run is cut short. Heavy models run longer, for a batch takes
#: a good part of a second. Sixteen images as JSON are 5 MB under way and keep every server busy.
_ALL = (
    Workload("mlp", "mlp", "json", "x", "scores", "tiny MLP, 16 numbers as JSON", open_rounds=2),
    Workload(
        "mlp-traced", "mlp", "json", "x", "scores", "the same, each request with trace headers of its own", traced=True
    ),
    Workload(
        "carry-json", "thumbnail", "json", "image", "logits", "96x96x3 image as JSON, little else", connections=16
    ),
    Workload(
        "image-binary", "mobilenet", "binary", "image", "logits", "MobileNetV2, 96x96x3 image in binary", seconds=3
    ),
    Workload("transformer", "transformer", "json", "tokens", "logits", "4-layer transformer, 64 tokens"),
    Workload(
        "transformer-mixed", "transformer_mixed", "json", "tokens", "logits", "the same, 4 to 64 tokens", rounds=3
    ),
    Workload("digits", "digits", "json", "image", "probabilities", "8x8 digits as JSON", rounds=3),
    Workload("image-json", "mobilenet", "json", "image", "logits", "the same image as JSON", connections=16, rounds=3),
)
WORKLOADS = {workload.name: workload for workload in _ALL}
