"""Compiles Ferry's C sources when it is installed or its wheel is built; app/core/compiled/library.py loads them.

Without a C compiler (`cc`, or what CC names) Ferry works all the same, and does by Python and numpy what they do.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: And what follows where they are not compiled.
SOURCES = {
    Path("app/codecs/json/numbers.c"): "reads long JSON arrays more slowly",
    Path("app/pipelines/fold/fold.c"): "takes more of the event loop for requests with trees",
}

#: Exponents between which a number of 19 digits is neither zero nor infinite, as in numbers.c.
POWERS = range(-342, 309)


class CompiledSources(BuildHookInterface[BuilderConfig]):
    """Puts compiled libraries beside their sources; a wheel that has them belongs to this kind of machine."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        for name, without in SOURCES.items():
            source = Path(self.root) / name
            library = source.with_suffix(".so")
            try:
                compile_library(source, library)
            except (OSError, subprocess.CalledProcessError) as error:
                with suppress(OSError):
                    library.unlink(missing_ok=True)  # it may be that of an older source
                print(f"Ferry {without}: {source.name} was not compiled ({error})", file=sys.stderr)
                continue
            build_data["artifacts"].append(str(library.relative_to(self.root)))
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def compile_library(source: Path, library: Path) -> None:
    """Raises OSError or CalledProcessError: there is no compiler, or it fails."""
    with tempfile.TemporaryDirectory(prefix=".compiled-", dir=library.parent) as folder:
        header, made = Path(folder) / "powers_of_five.h", Path(folder) / library.name
        header.write_text("".join(f"{{{power >> 64:#x}, {power % 2**64:#x}}},\n" for power in powers_of_five()))
        options = ["-O2", "-shared", "-fPIC", "-Wall", "-Wextra", f"-I{folder}"]
        subprocess.run([*shlex.split(os.environ.get("CC", "cc")), *options, "-o", made, source], check=True)
        made.replace(library)  # at once: another process may have the old one open


def powers_of_five() -> Iterator[int]:
    """The 128 highest bits of each, rounded down; those of reciprocals whose products may be exact are rounded up.

    These are the ones that numbers.c needs (section 5 of its paper).
    """
    for power in POWERS:
        if power >= 0:
            value = 5**power
            shift = value.bit_length() - 128
            yield value >> shift if shift > 0 else value << -shift
        else:
            divisor = 5**-power
            bits = divisor.bit_length() + 127
            yield (1 << bits) // divisor + (power >= -27)
