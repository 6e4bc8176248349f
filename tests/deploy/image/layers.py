"""The size of an image by layer, and the bound of each: python -m tests.deploy.image.layers [IMAGE]"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tests.deploy.image.container import IMAGE, docker

#: MB by the instruction that makes the layer, for FLAVOUR=serve: chosen, a twentieth above what there was when they
#: were stated. The base of .ci/base-image is larger than the official one, which is not to be had there.
BOUNDS_MB = {
    "base": 265.0,
    "RUN groupadd": 25.0,
    "COPY /venv": 1000.0,
    "COPY /ferry": 11.5,
    "COPY models": 1.0,
}
WHOLE_MB = 1270.0


@dataclass(frozen=True)
class Layer:
    """What one instruction added."""

    made_by: str
    mb: float
    bound_mb: float


def layers(image: str) -> Sequence[Layer]:
    """Those of the Dockerfile that hold anything, from the base, which counts as one, to the last."""
    lines = docker(
        "history", "--no-trunc", "--human=false", "--format", "{{.Size}}\t{{.CreatedBy}}", image
    ).splitlines()
    rows = [(float(size) / 1e6, made_by.replace("/bin/sh -c ", "")) for size, made_by in map(_split, reversed(lines))]
    first = next(i for i, (_, made_by) in enumerate(rows) if made_by.startswith("RUN groupadd"))
    found = [Layer("base", sum(mb for mb, _ in rows[:first]), BOUNDS_MB["base"])]
    for mb, made_by in rows[first:]:
        name = next((known for known in BOUNDS_MB if made_by.startswith(known)), made_by[:40])
        if mb:
            found.append(Layer(name, mb, BOUNDS_MB.get(name, 0.1)))
    return found


def beyond(found: Sequence[Layer]) -> Sequence[str]:
    """A sentence for each layer, and for the whole, that is larger than its bound."""
    whole = Layer("the whole image", sum(layer.mb for layer in found), WHOLE_MB)
    return [
        f"{layer.made_by} has {layer.mb:.1f} MB, its bound is {layer.bound_mb} MB"
        for layer in [*found, whole]
        if layer.mb > layer.bound_mb
    ]


def _split(line: str) -> tuple[str, str]:
    size, _, made_by = line.partition("\t")
    return size, made_by


def main() -> None:
    image = sys.argv[1] if len(sys.argv) > 1 else IMAGE
    try:
        found = layers(image)
    except (AssertionError, subprocess.SubprocessError, StopIteration) as error:
        sys.exit(f"No layers of {image}: {error}")
    print(f"{'layer':<16} {'MB':>7} {'bound':>7}")  # noqa: T201 - a command
    for layer in found:
        print(f"{layer.made_by:<16} {layer.mb:>7.1f} {layer.bound_mb:>7.1f}")  # noqa: T201 - a command
    print(f"{'whole':<16} {sum(layer.mb for layer in found):>7.1f} {WHOLE_MB:>7.1f}")  # noqa: T201 - a command
    sys.exit("\n".join(beyond(found)) or None)


if __name__ == "__main__":
    main()
