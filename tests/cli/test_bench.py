"""`ferry bench` against a small server on loopback, in a thread of its own."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from tests.bench.test_request_body import v1
from tests.support.waiting import HANG_S

FAST = ("--seconds", "0.2", "--first-rate", "100", "--trials", "2", "--target-p99-ms", "240000")


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine answers late, but it answers."""
    monkeypatch.setattr("app.bench.open_loop.GRACE_S", HANG_S)


class Server(threading.Thread):
    """Answers by path: a status and a document, after `good` requests 500; each after `pause_s`.

    `seen` has heads and bodies.
    """

    def __init__(self, replies: dict[str, tuple[int, object]], good: int = 1_000_000, pause_s: float = 0.0) -> None:
        super().__init__(daemon=True)
        self.port = 0
        self.seen: list[tuple[str, bytes]] = []
        self._replies = replies
        self._good = good
        self._pause_s = pause_s
        self._ready = threading.Event()

    @contextmanager
    def serving(self) -> Iterator[str]:
        self.start()
        assert self._ready.wait(HANG_S)
        yield f"http://127.0.0.1:{self.port}"
        self._loop.call_soon_threadsafe(self._end.set)
        self.join(HANG_S)

    def run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
                self.seen.append((head, await reader.readexactly(length)))
                status, document = self._replies[head.split(" ")[1]]
                status = status if len(self.seen) <= self._good else 500
                content = json.dumps(document).encode()
                await asyncio.sleep(self._pause_s)
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def bench(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["bench", *map(str, arguments)])


def test_it_prints_each_rate_and_the_highest_good_one_and_draws(tmp_path: Path) -> None:
    picture = tmp_path / "curve.svg"
    metadata = json.loads(v1())
    server = Server({"/v1/models/m:predict": (200, {}), "/v1/models/m/metadata": (200, metadata)})
    with server.serving() as url:
        result = bench(f"{url}/v1/models/m:predict", *FAST, "--rows", 2, "--picture", picture)
    assert result.exit_code == 0, result.output
    assert "Highest rate with p99 <= 240000 ms: 200 requests/s" in result.stdout
    assert [line.split()[0] for line in result.stdout.splitlines()[1:3]] == ["100", "200"]
    assert picture.read_text().startswith("<svg")
    bodies = [json.loads(body) for head, body in server.seen if head.startswith("POST")]
    assert len(bodies) > 20
    assert all(len(body["inputs"]["x"]) == 2 for body in bodies)


def test_it_sends_the_body_and_headers_that_it_is_given(tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(b"\0anything")
    server = Server({"/any?thing": (200, {})})
    with server.serving() as url:
        result = bench(f"{url}/any?thing", *FAST, "--body", body, "--header", "X-Key: a:b")
    assert result.exit_code == 0, result.output
    assert {sent for _, sent in server.seen} == {b"\0anything"}
    assert all("X-Key: a:b\r\n" in head for head, _ in server.seen)


def test_a_body_that_is_rejected_is_not_said_to_be_made(tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"{}")
    with Server({"/any": (400, {"error": "bad"})}).serving() as url:
        told = one_line(bench(f"{url}/any", *FAST, "--body", tmp_path / "body"))
    assert "rejects the request with 400" in told


def test_no_good_rate_is_an_exit_code() -> None:
    server = Server({"/v1/models/m:predict": (200, {}), "/v1/models/m/metadata": (200, json.loads(v1()))}, good=2)
    with server.serving() as url:
        result = bench(f"{url}/v1/models/m:predict", *FAST)
    assert result.exit_code == 1
    assert "x status 500" in result.stdout
    assert "No rate was answered" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["http://h/x", "--ca", "/none"], "--ca, --certificate and --key are for a URL of https"),
        (["https://h/x", "--ca", "/none"], "--ca /none cannot be used: [Errno 2] No such file or directory"),
        (["https://h/x", "--certificate", "/none"], "--certificate /none cannot be used: [Errno 2] No such file"),
        (["https://h/x", "--key", "/none"], "--key goes with --certificate"),
    ],
)
def test_options_of_tls_that_cannot_be_used_are_named(arguments: list[str], said: str) -> None:
    result = bench(*arguments)
    assert result.exit_code == 2
    assert said in " ".join(re.sub("[│╭╮╰╯─]", "", result.stderr).split())


def one_line(result: Result) -> str:
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = [line for line in result.stderr.splitlines() if line.strip()]
    return line


@pytest.mark.parametrize(
    ("replies", "text"),
    [
        ({"/v1/models/m/metadata": (404, {"error": "no such model"})}, "status 404, not metadata.*no such model"),
        (
            {"/v1/models/m/metadata": (200, json.loads(v1())), "/v1/models/m:predict": (400, {"error": "bad"})},
            "rejects the request, made from the model's metadata .--body FILE sends another., with 400.*bad",
        ),
        ({}, "No reply from 127.0.0.1"),
    ],
)
def test_a_server_that_does_not_serve_is_told_in_one_line(replies: dict[str, tuple[int, object]], text: str) -> None:
    with Server(replies).serving() as url:
        assert re.search(text, one_line(bench(f"{url}/v1/models/m:predict", *FAST)))


@pytest.mark.parametrize("url", ["nonsense", "http://127.0.0.1:1/predict"])
def test_an_address_that_does_not_work_is_told_in_one_line(url: str) -> None:
    assert one_line(bench(url, *FAST)).startswith("ferry: ")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1/models/m:predict", "https://[::1]:1/v2/models/m/infer"])
def test_where_nothing_listens_the_url_is_named(url: str) -> None:
    assert one_line(bench(url, *FAST)).startswith(f"ferry: {url} cannot be reached: ")


def test_requests_that_wait_for_a_connection_are_told() -> None:
    """One at a time, and the server takes longer than they are apart."""
    replies = {"/v1/models/m/metadata": (200, json.loads(v1())), "/v1/models/m:predict": (200, {"predictions": [1]})}
    with Server(replies, pause_s=0.05).serving() as url:
        result = bench(f"{url}/v1/models/m:predict", *FAST, "--connections", 1)
    told = r"[1-9][\d.]*% of the requests waited here since all 1 connections were busy \(counted into their latencies"
    assert re.search(told, result.stdout), result.stdout


def test_a_header_without_a_colon_is_rejected() -> None:
    result = bench("http://127.0.0.1:1/x", "--header", "nonsense")
    assert result.exit_code == 2
    assert "NAME:VALUE" in result.stderr
