"""A checkout of another revision beside this tree, to measure both in turn."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.support.cache import ROOT

#: As an installation does, with the tree's own build hook.
_COMPILE = """
from pathlib import Path
from hatch_build import compile_library
for source in Path("app").rglob("*.c"):
    compile_library(source, source.with_suffix(".so"))
"""


@contextmanager
def other_tree(revision: str) -> Iterator[Path]:
    """A checkout of its own of this revision, compiled. CalledProcessError: git or the compiler failed."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, revision], cwd=ROOT, check=True)
        try:
            if any((tree / "app").rglob("*.c")):
                subprocess.run([sys.executable, "-c", _COMPILE], cwd=tree, check=True)
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)
