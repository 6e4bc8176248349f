"""Real processes, small ones."""

import sys
from pathlib import Path

import numpy as np
import pytest

from bench.peers.process import PeerFailed, PeerProcess, tree
from bench.support.answers import Sample
from bench.support.forms import FORMS
from tests.support.processes import free_port
from tests.support.waiting import HANG_S

ECHO = "import sys\nfor line in sys.stdin: print('noise'); print('RESULT ' + line, end='', flush=True)"
PARENT = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("RESULT {}", flush=True)
sys.stdin.read()
"""
SAMPLE = Sample(FORMS["v1-json"], "x", np.zeros(1, np.float32), np.zeros(1, np.float32))


def started(code: str, log: Path, talks: bool = True) -> PeerProcess:
    return PeerProcess([sys.executable, "-c", code], {}, log / "log", talks)


def test_it_reads_the_results_and_skips_other_output(tmp_path: Path) -> None:
    with started(ECHO, tmp_path) as process:
        for n in range(3):
            process.tell({"n": n})
            assert process.hear(HANG_S) == {"n": n}
        assert process.rss_mib() > 1
        process.check_alive()


def test_processor_time_is_that_of_its_children_too(tmp_path: Path) -> None:
    """The child says so when it has used 0.2 s; the parent has used some more."""
    burn = "import time\nwhile time.process_time() < 0.2: pass\nprint('RESULT {}', flush=True)\ntime.sleep(60)"
    code = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {burn!r}])\nsys.stdin.read()"
    with started(code, tmp_path) as process:
        process.hear(HANG_S)
        assert process.cpu_s() >= 0.19  # the kernel counts in ticks of 0.01 s


def test_a_stopped_process_says_nothing_until_it_goes_on(tmp_path: Path) -> None:
    with started(ECHO, tmp_path) as process:
        process.tell({"n": 0})
        process.hear(HANG_S)
        process.pause()
        process.tell({"n": 1})
        with pytest.raises(PeerFailed, match="said nothing"):
            process.hear(0.05)
        process.resume()
        assert process.hear(HANG_S) == {"n": 1}


def test_the_end_of_a_process_is_told_with_its_last_line(tmp_path: Path) -> None:
    with started("import sys; sys.exit('no such model')", tmp_path) as process:
        with pytest.raises(PeerFailed, match="no such model"):
            process.hear(HANG_S)
        with pytest.raises(PeerFailed, match="no such model"):
            process.wait_for_answer(free_port(), "/", SAMPLE)


def test_children_end_with_their_parent(tmp_path: Path) -> None:
    with started(PARENT, tmp_path) as process:
        process.hear(HANG_S)
        _, child = tree(process._process.pid)
    assert child not in alive()


def alive() -> list[int]:
    """A killed orphan may stay as a zombie until its new parent looks."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            found.append(int(folder.name))
    return found


def test_a_wrong_answer_ends_the_wait(tmp_path: Path) -> None:
    """http.server knows no POST: 501."""
    port = free_port()
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(tmp_path)]
    with PeerProcess(command, {}, tmp_path / "log", talks=False) as process, pytest.raises(PeerFailed, match="501"):
        process.wait_for_answer(port, "/", SAMPLE)
