"""JSON in the charset that Content-Type names, over sockets: HTTP/1.1 and HTTP/2, one process and frontends."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import httpx

from app.transports.http.http_api import LONG_BODY_BYTES
from tests.every_protocol.live import live
from tests.every_protocol.suite import in_every_arrangement, runtime_in_place

__all__ = ["runtime_in_place"]  # a fixture

PREDICT, INFER = "/v1/models/m:predict", "/v2/models/m/infer"
ROWS = [[1.0, 2.0]]
TEXTS = {
    PREDICT: json.dumps({"instances": ROWS}),
    INFER: json.dumps({"inputs": [{"name": "features", "datatype": "FP32", "shape": [1, 2], "data": ROWS}]}),
}

#: What Content-Type says, and how Python encodes it.
CHARSETS = {"utf-16": "utf-16", "UTF-16LE": "utf-16-le", '"utf-16be"': "utf-16-be", "ISO-8859-1": "latin-1"}


async def ask(client: httpx.AsyncClient, path: str, body: bytes, charset: str, **headers: str) -> httpx.Response:
    return await client.post(
        path, content=body, headers={"Content-Type": f"application/json; charset={charset}", **headers}
    )


async def same_answers(client: httpx.AsyncClient) -> None:
    for path, text in TEXTS.items():
        expected = await ask(client, path, text.encode(), "utf-8")
        assert expected.status_code == 200, expected.text
        for charset, encoding in CHARSETS.items():
            body = text.encode(encoding)
            reply = await ask(client, path, body, charset)
            assert (reply.status_code, reply.content) == (200, expected.content), (path, charset)
            reply = await ask(client, path, gzip.compress(body), charset, **{"Content-Encoding": "gzip"})
            assert (reply.status_code, reply.content) == (200, expected.content), (path, charset)


async def same_words(client: httpx.AsyncClient) -> None:
    """The name of a signature comes back in the error, so every character of it was read."""
    text = '{"signature_name": "Größe ½", "instances": [[1, 2]]}'
    for charset, encoding in CHARSETS.items():
        reply = await ask(client, PREDICT, text.encode(encoding), charset)
        assert reply.status_code == 400
        assert '"Größe ½"' in reply.json()["error"]


async def others_are_not_read(client: httpx.AsyncClient) -> None:
    for path, text in TEXTS.items():
        reply = await ask(client, path, text.encode(), "koi8-r")
        assert reply.status_code == 415
        assert reply.json()["error"].endswith("expected one of utf-8, utf-16, utf-16le, utf-16be, iso-8859-1")
        reply = await ask(client, path, text.encode("utf-16") + b"}", "utf-16")
        assert (reply.status_code, "not utf-16" in reply.json()["error"]) == (400, True)
    reply = await ask(client, PREDICT + "Stream", b"[1, 2]\n", "utf-16")
    assert (reply.status_code, "utf-8" in reply.json()["error"]) == (415, True)
    text = TEXTS[INFER]
    length = {"Inference-Header-Content-Length": str(len(text))}
    assert (await ask(client, INFER, text.encode(), "utf-8", **length)).status_code == 200
    reply = await ask(client, INFER, text.encode(), "latin1", **length)
    assert (reply.status_code, "binary tensors" in reply.json()["error"]) == (415, True)
    reply = await ask(client, "/v2/repository/index", '{"ready": true}'.encode("utf-16"), "utf-16")
    assert (reply.status_code, [each["name"] for each in reply.json()]) == (200, ["m"])


@in_every_arrangement
def test_a_body_is_read_in_the_charset_that_is_named(tmp_path: Path, frontends: int) -> None:
    async def main() -> None:
        async with live(tmp_path, frontends=frontends) as served:
            for client in (served.http, served.http2):
                await same_answers(client)
                await same_words(client)
                await others_are_not_read(client)
            await options_of_batching(served.http)

    asyncio.run(main())


async def options_of_batching(client: httpx.AsyncClient) -> None:
    body, headers = '{"max_batch_size": 4}'.encode("utf-16-le"), {"Content-Type": "text/json; charset=utf-16le"}
    reply = await client.patch("/v1/models/m/batching", content=body, headers=headers)
    assert (reply.status_code, reply.json()["max_batch_size"]) == (200, 4), reply.text


@in_every_arrangement
def test_a_long_body_is_converted_before_a_process_reads_it_and_has_its_limit_in_utf_8(
    tmp_path: Path, frontends: int
) -> None:
    async def main() -> None:
        async with live(tmp_path, frontends=frontends, max_body_bytes=4 * LONG_BODY_BYTES) as served:
            for path, text in TEXTS.items():
                expected = await ask(served.http, path, text.encode(), "utf-8")
                long = text + " " * LONG_BODY_BYTES
                for charset, encoding in CHARSETS.items():
                    reply = await ask(served.http, path, long.encode(encoding), charset)
                    assert (reply.status_code, reply.content) == (200, expected.content), (path, charset)
                too_large = text.encode() + b"\xe9" * (3 * LONG_BODY_BYTES)
                reply = await ask(served.http, path, too_large, "latin-1")
                assert reply.status_code == 413, "twice as long in UTF-8"

    asyncio.run(main())
