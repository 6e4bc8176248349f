"""What is asked: a model, how its inputs travel, and what must come back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Workload:
    """`wire` is "json" or "binary": which of a peer's forms carries the inputs. `input`, `output` name tensors."""

    name: str
    model: str
    wire: str
    input: str
    output: str
    about: str


_ALL = (
    Workload("mlp", "mlp", "json", "x", "scores", "tiny MLP, 16 numbers as JSON"),
    Workload("digits", "digits", "json", "image", "probabilities", "8x8 digits as JSON"),
    Workload("image-json", "mobilenet", "json", "image", "logits", "MobileNetV2, 96x96x3 image as JSON"),
    Workload("image-binary", "mobilenet", "binary", "image", "logits", "MobileNetV2, 96x96x3 image in binary"),
    Workload(
        "carry-json", "thumbnail", "json", "image", "logits", "96x96x3 image as JSON to a model at next to no cost"
    ),
    Workload("transformer", "transformer", "json", "tokens", "logits", "4-layer transformer, 64 tokens"),
    Workload("transformer-mixed", "transformer_mixed", "json", "tokens", "logits", "the same, 4 to 64 tokens"),
)
WORKLOADS = {workload.name: workload for workload in _ALL}
