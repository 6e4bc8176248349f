"""Names of classes, which a version may bring in a text file: classifications over Open Inference v2 show them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path

from app.core.inference import ModelSignature, TensorSpec

logger = logging.getLogger(__name__)

#: In the folder that SavedModels have for files of their users: a name in each line, in the order of the classes.
FILE_NAME = "assets.extra/labels.txt"

#: Of the file. Chosen: ten times ImageNet's 21,841 classes with their long names.
_MOST_BYTES = 1 << 23


def read_labels(version: Path) -> Sequence[str]:
    """The labels in the folder of a version; empty if it has none, or none that can be read, which is logged."""
    file = version / FILE_NAME
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ValueError(f"it is longer than {_MOST_BYTES:,} bytes")
        return tuple(content.decode().splitlines())
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        logger.warning("%s is ignored, so classifications have no labels: %s", file, error)
        return ()


def with_labels(signatures: Mapping[str, ModelSignature], labels: Sequence[str]) -> Mapping[str, ModelSignature]:
    """The signatures, with the labels at each output that has one number for each."""
    if not labels:
        return signatures
    return {
        name: replace(
            signature,
            labels={
                output: labels
                for output, spec in signature.outputs.items()
                if _classes(spec, batched=signature.answers_rows) == len(labels)
            },
        )
        for name, signature in signatures.items()
    }


def _classes(spec: TensorSpec, *, batched: bool) -> int:
    """How many numbers a row has; 0 if that is not fixed, or they are no numbers."""
    shape = (spec.shape or ())[1 if batched else 0 :]
    if spec.shape is None or None in shape or spec.dtype.hasobject or spec.dtype.kind in "bc":
        return 0
    return prod(size or 0 for size in shape)
