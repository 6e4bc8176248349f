"""One peer at one workload: ready to be measured, again and again."""

from __future__ import annotations

import http.client
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.bench.load_connection import write_request
from app.bench.open_loop import LoadTarget, open_loop, run_precisely
from bench.models import read_samples, samples_file, saved_model
from bench.peers.descriptor import FOLDER, Peer
from bench.peers.environments import python_of
from bench.peers.plan import run_s
from bench.peers.process import START_S, PeerFailed, PeerProcess, free_port
from bench.support.answers import Probe, Sample, WrongAnswer, ask
from bench.support.cache import CACHE
from bench.support.forms import FORMS
from bench.support.workloads import Workload
from bench.support.wrk import closed_loop

#: Where Ferry remembers the execution variants that it chose; the limit that runs the same ones reads them there.
VARIANTS = CACHE / "variants"


class PeerUnderLoad:
    """`launch` and `get_ready` start the peer and let it sleep; `closed` and `open` wake it for their time.

    Raises PeerFailed from every method, and EnvironmentFailed from `launch`.
    """

    def __init__(self, peer: Peer, workload: Workload) -> None:
        self.peer, self.workload = peer, workload
        self.about = ""
        self.rss_mib = 0.0
        self._process: PeerProcess | None = None
        self._port = 0
        self._path, self.samples = "", []
        if not peer.in_process:
            endpoint = peer.endpoints[workload.wire]
            self._path = endpoint.path.format(model=workload.model)
            form = FORMS[endpoint.form]
            rows = read_samples(workload.model)
            self.samples: list[Sample] = [Sample(form, workload.input, row, expected) for row, expected in rows]

    def launch(self) -> None:
        """Begins its start; others may be launched meanwhile."""
        self._port = free_port()
        log = CACHE / "logs" / f"{self.workload.name}-{self.peer.name}.log"
        self._process = PeerProcess(self._command(), self._variables(), log, self.peer.in_process)

    def get_ready(self) -> None:
        """Proves that what was launched runs and answers rightly, then lets it sleep."""
        self._prove()
        self._sleep()

    def end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None

    def closed(self) -> dict[str, Any]:
        """wrk's figures, or the loop's own, for as long as the workload says. All answers looked at were right.

        `cpu_us` is the processor time of the peer's processes for each request.
        """
        connections, seconds = self.workload.connections, self.workload.seconds
        process = self._wake()
        if self.peer.in_process:
            began_s = process.cpu_s()
            process.tell({"seconds": seconds, "connections": connections})
            figures = process.hear(seconds + 120)
            figures["rate"] = figures["requests"] / figures["seconds"]
        else:
            bodies = [sample.body for sample in self.samples]
            warm_up = closed_loop(self.url, bodies, connections, 1)  # after its sleep
            seconds = run_s(seconds, connections, warm_up.rate)
            with self._checked() as asked:
                began_s = process.cpu_s()
                figures = asdict(closed_loop(self.url, bodies, connections, seconds, traced=self.workload.traced))
            figures["answers_checked"] = asked()
        figures["cpu_us"] = 1e6 * (process.cpu_s() - began_s) / max(1, figures["requests"])
        self._after(figures["failed"])
        return {**figures, "rss_mib": self.rss_mib}

    def press(self, seconds: float) -> dict[str, Any]:
        """wrk's figures and RSS; unlike `closed` it neither warms up before nor sleeps after."""
        process = self._wake()
        with self._checked():
            bodies = [sample.body for sample in self.samples]
            figures = asdict(closed_loop(self.url, bodies, self.workload.connections, seconds))
        if figures["failed"]:
            raise PeerFailed(f"{figures['failed']} requests failed under load")
        return {**figures, "rss_mib": process.rss_mib()}

    def open(self, rates: Sequence[float]) -> list[dict[str, Any]]:
        """Requests at Poisson times, one rate after the other; a latency runs from the time at which each was due."""
        seconds = self.workload.seconds
        self._wake()
        run_precisely(open_loop(self._target(), self._requests(), min(rates), min(1.0, seconds)))  # as above
        figures = [self._open_once(rate, seconds) for rate in rates]
        self._after(0)  # here failures are a figure: a rate may be too high for a peer
        return figures

    def _open_once(self, rate: float, seconds: float) -> dict[str, Any]:
        with self._checked() as asked:
            load = run_precisely(open_loop(self._target(), self._requests(), rate, seconds))
        return {
            "rate": load.rate,
            "answered": load.answered_rate,
            "failed": load.failed,
            "intended": load.intended,
            "held_back": load.held_back,
            "p50_ms": 1e3 * load.latency_s(0.5),
            "p99_ms": 1e3 * load.latency_s(0.99),
            "late_p99_ms": 1e3 * load.late_p99_s,
            "answers_checked": asked(),
        }

    def _requests(self) -> list[bytes]:
        bodies = (sample.body for sample in self.samples)
        return [write_request("POST", self._path, "127.0.0.1", body.headers, body.content) for body in bodies]

    def _target(self) -> LoadTarget:
        return LoadTarget("127.0.0.1", self._port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}{self._path}"

    def _prove(self) -> PeerProcess:
        assert self._process
        if self.peer.in_process:
            self.about = self._process.hear(START_S).get("about", "")
        else:
            self._process.wait_for_answer(self._port, self._path, self.samples[0])
            self._check_answers(self.samples)
        return self._process

    def _wake(self) -> PeerProcess:
        if self._process is None:
            self.launch()
            return self._prove()
        self._process.check_alive()
        self._process.resume()
        return self._process

    def _after(self, failed: int) -> None:
        assert self._process
        self._process.check_alive()
        self.rss_mib = self._process.rss_mib()
        self._sleep()
        if failed:
            raise PeerFailed(f"{failed} requests failed under load")

    def _sleep(self) -> None:
        assert self._process
        if self.peer.pausable:
            self._process.pause()
        else:
            self.end()

    def _command(self) -> list[str]:
        return [part.format(**self._places()) for part in self.peer.command]

    def _variables(self) -> dict[str, str]:
        own = {name: value.format(**self._places()) for name, value in self.peer.variables.items()}
        return own | {
            "PYTHONPATH": str(FOLDER.parent.parent),
            "BENCH_PORT": str(self._port),
            "BENCH_MODEL": self.workload.model,
            "BENCH_SAVED_MODEL": str(saved_model(self.workload.model)),
            "BENCH_SAMPLES": str(samples_file(self.workload.model)),
            "BENCH_INPUT": self.workload.input,
            "BENCH_OUTPUT": self.workload.output,
            "BENCH_WIRE": self.workload.wire,
            "BENCH_VARIANTS": str(VARIANTS),
        }

    def _places(self) -> dict[str, object]:
        version = saved_model(self.workload.model)
        return {
            "python": python(self.peer),
            "port": self._port,
            "folder": FOLDER / self.peer.name,
            "model": self.workload.model,
            "saved_model": version,
            "repository": version.parent.parent,
            "variants": VARIANTS,
        }

    @contextmanager
    def _checked(self) -> Iterator[Callable[[], int]]:
        """Known answers are asked for before, during and after the block; yields what tells how many."""
        self._check_answers(self.samples[:4])
        probe = Probe(self._port, self._path, self.samples)
        with probe:
            yield lambda: probe.asked + 8
        if probe.failure is not None:
            raise PeerFailed(f"wrong answer under load: {probe.failure}")
        self._check_answers(self.samples[-4:])

    def _check_answers(self, samples: Sequence[Sample]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            for sample in samples:
                ask(connection, self._path, sample)
        except (WrongAnswer, OSError, http.client.HTTPException) as error:
            raise PeerFailed(f"wrong answer: {error}") from error
        finally:
            connection.close()


def python(peer: Peer) -> Path:
    """Raises EnvironmentFailed."""
    if peer.requirements is None:
        return Path(sys.executable)
    return python_of(peer.name, peer.requirements, peer.interpreters)
