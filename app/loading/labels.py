"""Names of classes in a text file of a version: classifications over Open Inference v2 show them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path

from app.core.inference import ModelSignature, TensorSpec

logger = logging.getLogger(__name__)

#: The file, in the folder that SavedModels have for files of their users: a name in each line, by class number.
FILE_NAME = "assets.extra/labels.txt"

#: The largest file. Chosen: ten times ImageNet's 21,841 classes with their long names.
_MOST_BYTES = 1 << 23


def read_labels(version: Path) -> Sequence[str]:
    """The labels in the folder of a version; empty, with a warning, if its file cannot be read."""
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
    """The numbers in a row of an output; 0 if their count is not fixed, or they are no numbers."""
    shape = (spec.shape or ())[1 if batched else 0 :]
    if spec.shape is None or None in shape or spec.dtype.hasobject or spec.dtype.kind in "bc":
        return 0
    return prod(size or 0 for size in shape)
