"""A server of a model whose calls take some milliseconds, on cores of its own, and requests for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.request import urlopen

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from app.bench.load_connection import ServerReply, write_request
from bench.models import ensure_models, read_samples, saved_model
from bench.support.answers import Sample, WrongAnswer
from bench.support.cache import CACHE
from bench.support.cores import for_server_and_load, on_cores
from bench.support.forms import FORMS
from bench.support.live_server import live_process

MODEL, INPUT = "transformer", "tokens"

#: Searched once for all that run on these cores, and not in the benchmark of the peers.
VARIANTS = CACHE / "heavy_server_variants"

#: More than requests wait within a deadline of half a second: in the generator, no server could refuse them.
MANY_CONNECTIONS = 4096

#: The header that names a caller, where the server is told so.
CALLER = "X-Caller"

_PATH = f"/v2/models/{MODEL}/infer"


@contextmanager
def heavy_server(**settings: object) -> Iterator[tuple[int, int]]:
    """Yields its port and process number. Code in the block runs on the cores that are left for the load."""
    ensure_models()
    server_cores, load_cores = for_server_and_load()
    settings = {"models": saved_model(MODEL).parent.parent, "grpc_port": 0, "variant_cache": VARIANTS, **settings}
    with on_cores(server_cores):
        server = live_process(**settings)
        with server as (port, process), on_cores(load_cores):
            yield port, process


class HeavyRequests:
    """Requests of `rows` rows with a deadline, in binary, and what must come back; of this caller, if it is named."""

    def __init__(self, deadline_s: float, rows: int = 1, caller: str = "") -> None:
        pairs = read_samples(MODEL)
        groups = [pairs[first : first + rows] for first in range(0, len(pairs) - rows + 1, rows)]
        form = FORMS["v2-binary-rows"]
        self._samples = [
            Sample(form, INPUT, *(np.stack(each) for each in zip(*group, strict=True))) for group in groups
        ]
        own = {"X-Request-Timeout-Ms": f"{1e3 * deadline_s:g}"} | ({CALLER: caller} if caller else {})
        bodies = [sample.body for sample in self._samples]
        self.bytes = [
            write_request("POST", _PATH, "127.0.0.1", {**body.headers, **own}, body.content) for body in bodies
        ]

    def check(self, number: int, reply: ServerReply) -> None:
        """Raises ValueError where the reply is not what the SavedModel says."""
        try:
            self._samples[number].check(reply.status, reply.headers, reply.body)
        except WrongAnswer as wrong:
            raise ValueError(str(wrong)) from wrong


def read_metrics(port: int) -> Mapping[tuple[str, str], float]:
    """What the server counted for the model, by the sample's name and, of a histogram's buckets, its bound."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
        page = reply.read().decode()
    found = defaultdict[tuple[str, str], float](float)
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.labels.get("model") == MODEL:
                found[sample.name, sample.labels.get("le", "")] += sample.value
    return found
