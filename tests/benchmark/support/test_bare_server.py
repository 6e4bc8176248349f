from __future__ import annotations

from urllib.request import urlopen

from bench.support.bare_server import bare_server
from tests.support.waiting import HANG_S


def test_it_answers_whatever_is_asked_until_the_block_ends() -> None:
    with bare_server() as port:
        for data in (None, b"x" * 100_000):
            with urlopen(f"http://127.0.0.1:{port}/any/path", data, timeout=HANG_S) as reply:
                assert (reply.status, reply.read()) == (200, b"ok")
