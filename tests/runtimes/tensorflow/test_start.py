from __future__ import annotations

import _ctypes
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from app.runtimes.tensorflow.start import load_library, without_banner
from tests.support.waiting import HANG_S

_LOAD_AND_TELL = """
import sys
from app.runtimes.tensorflow.start import load_libraries
load_libraries()
print("libtensorflow_cc" in open("/proc/self/maps").read(), "tensorflow" in sys.modules)
"""


def test_other_threads_run_while_a_library_is_loaded(tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    os.mkfifo(library)  # reading it waits for a writer, which is this thread
    loaded: list[bool] = []
    thread = threading.Thread(target=lambda: loaded.append(load_library(library)))
    thread.start()
    with library.open("wb") as writer:
        writer.write(b"no library")
    thread.join(HANG_S)
    assert loaded == [False]


def test_the_libraries_are_there_before_tensorflow_is_imported() -> None:
    command = [sys.executable, "-c", _LOAD_AND_TELL]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_S)
    assert told.stdout.split() == ["True", "False"]


def test_the_library_of_cuda_that_tensorflow_does_not_find_is_loaded_first(tmp_path: Path) -> None:
    folder = tmp_path / "nvidia" / "cusolver" / "lib"
    folder.mkdir(parents=True)
    shutil.copy(_ctypes.__file__, folder / "libcusolver.so.11")  # any library
    program = "from app.runtimes.tensorflow import start; start._LIBRARIES = (); start.load_libraries()\n"
    program += "print('libcusolver.so.11' in open('/proc/self/maps').read())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=HANG_S, env=environment
    )
    assert told.stdout.split() == ["True"]


def test_a_library_that_is_not_there_is_left_to_the_import(tmp_path: Path) -> None:
    assert not load_library(tmp_path / "none.so")


def test_tensorflow_says_nothing_about_itself(capfd: pytest.CaptureFixture[str]) -> None:
    with without_banner():
        os.write(2, b"I0000 port.cc:153] oneDNN custom operations are on. You may see\nsomething else\n")
    os.write(2, b"oneDNN custom operations are on, it says\n")
    assert capfd.readouterr().err == "something else\noneDNN custom operations are on, it says\n"
