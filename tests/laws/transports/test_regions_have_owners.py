"""A region of shared memory belongs to the caller who registered it: on every way, REST and gRPC, whatever permissions
others have, for all of them but an operator there is no such region, and nothing of it is read or written.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import numpy as np
import pytest

from app.codecs.protobuf.messages import message_class
from app.protocols.open_inference import api
from app.transports.local_clients import user_of
from tests.access.test_every_route import INFER_PATH, access_file, bearer, key
from tests.every_protocol.live import Live
from tests.every_protocol.suite import runtime_in_place
from tests.laws.transports.test_ways_alike import play, secret_of
from tests.support.waiting import HANG_S

__all__ = ["runtime_in_place"]  # a fixture

OWNER, OTHER, READER, OPERATOR = (secret_of(number) for number in range(4))
TENANT = ["infer", "metadata", "administration"]
KEYS = (
    key("owner", OWNER, models=["m"], permissions=TENANT),
    key("other", OTHER, models=["m"], permissions=TENANT),
    key("reader", READER, permissions=["infer", "metadata"]),
    key("operator", OPERATOR),
)
BYTES = np.array([[1.0, 2.0]], np.float32).tobytes()
SERVICE = "inference.GRPCInferenceService"


@pytest.fixture
def shared() -> Iterator[Path]:
    path = Path("/dev/shm") / f"ferry_{uuid4().hex}"  # noqa: S108 - where POSIX shared memory lives
    path.write_bytes(BYTES * 2)
    yield path
    path.unlink()


class Way:
    """What callers do with regions over one protocol; each returns its document, or the error's text."""

    def __init__(self, running: Live) -> None:
        self._running = running

    async def status(self, secret: str, name: str = "") -> Any:
        raise NotImplementedError

    async def unregister(self, secret: str, name: str = "") -> str:
        raise NotImplementedError

    async def infer(self, secret: str, *, reads: bool, writes: bool) -> str:
        """'' if it was computed."""
        raise NotImplementedError


PLACE = {"shared_memory_region": "r", "shared_memory_byte_size": 8}


class Rest(Way):
    async def _ask(self, method: str, path: str, secret: str, document: Any = None) -> Any:
        reply = await self._running.http.request(method, path, headers=bearer(secret), json=document)
        found = reply.json()
        return found.get("error", "") if isinstance(found, dict) else [each["name"] for each in found]

    async def status(self, secret: str, name: str = "") -> Any:
        region = f"/region/{name}" if name else ""
        return await self._ask("GET", f"/v2/systemsharedmemory{region}/status", secret)

    async def unregister(self, secret: str, name: str = "") -> str:
        region = f"/region/{name}" if name else ""
        return str(await self._ask("POST", f"/v2/systemsharedmemory{region}/unregister", secret))

    async def infer(self, secret: str, *, reads: bool, writes: bool) -> str:
        given: dict[str, Any] = {"parameters": PLACE} if reads else {"data": [1.0, 2.0]}
        document: dict[str, Any] = {"inputs": [{"name": "features", "datatype": "FP32", "shape": [1, 2], **given}]}
        if writes:
            place = {**PLACE, "shared_memory_offset": 8}
            document["outputs"] = [
                {"name": next(iter(self._running.model.signatures["serving_default"].outputs)), "parameters": place}
            ]
        return str(await self._ask("POST", INFER_PATH, secret, document))


class Grpc(Way):
    async def _ask(self, method: str, secret: str, message: Any) -> Any:
        metadata = [("authorization", f"Bearer {secret}")]
        content = message.SerializeToString()
        try:
            return await self._running.channel.unary_unary(f"/{SERVICE}/{method}")(content, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return error.details() or str(error.code())

    async def status(self, secret: str, name: str = "") -> Any:
        request = message_class("inference.SystemSharedMemoryStatusRequest")(name=name)
        found = await self._ask("SystemSharedMemoryStatus", secret, request)
        reply = message_class("inference.SystemSharedMemoryStatusResponse")
        return found if isinstance(found, str) else sorted(reply.FromString(found).regions)

    async def unregister(self, secret: str, name: str = "") -> str:
        request = message_class("inference.SystemSharedMemoryUnregisterRequest")(name=name)
        found = await self._ask("SystemSharedMemoryUnregister", secret, request)
        return found if isinstance(found, str) else ""

    async def infer(self, secret: str, *, reads: bool, writes: bool) -> str:
        message = message_class("inference.ModelInferRequest")(model_name="m")
        tensor = message.inputs.add(name="features", datatype="FP32", shape=[1, 2])
        if reads:
            _place(tensor, 0)
        else:
            tensor.contents.fp32_contents.extend([1.0, 2.0])
        if writes:
            outputs = self._running.model.signatures["serving_default"].outputs
            _place(message.outputs.add(name=next(iter(outputs))), 8)
        found = await self._ask("ModelInfer", secret, message)
        return found if isinstance(found, str) else ""


def _place(tensor: Any, offset: int) -> None:
    tensor.parameters["shared_memory_region"].string_param = "r"
    tensor.parameters["shared_memory_byte_size"].int64_param = 8
    tensor.parameters["shared_memory_offset"].int64_param = offset


NOT_FOUND = "Unable to find system shared memory region: 'r'"


@pytest.mark.parametrize("way", [Rest, Grpc])
def test_a_region_is_there_for_its_owner_alone(tmp_path: Path, shared: Path, way: Callable[[Live], Way]) -> None:
    def content() -> bytes:
        return shared.read_bytes()

    async def scenario(running: Live) -> None:
        does = way(running)

        async def register(secret: str) -> None:
            registered = await running.http.post(
                "/v2/systemsharedmemory/region/r/register",
                headers=bearer(secret),
                json={"key": shared.name, "byte_size": 2 * len(BYTES)},
            )
            assert registered.status_code == 200, registered.text

        await register(OWNER)
        for secret, (reads, writes) in itertools.product(
            (OTHER, READER, OPERATOR), ((True, False), (False, True), (True, True))
        ):
            assert await does.infer(secret, reads=reads, writes=writes) == NOT_FOUND
        assert content() == 2 * BYTES, "nothing was written"
        for secret in (OTHER, READER):
            assert await does.status(secret) == []
            assert await does.status(secret, "r") == NOT_FOUND
        for name in ("r", ""):
            assert await does.unregister(OTHER, name) == ""
        assert await does.unregister(OPERATOR) == ""
        assert await does.status(OWNER) == await does.status(OPERATOR) == ["r"]
        await register(OTHER)  # each has names of its own
        assert await does.status(OTHER) == ["r"]
        assert await does.infer(OTHER, reads=True, writes=False) == ""
        assert await does.unregister(OTHER, "r") == ""
        assert await does.status(OTHER) == []
        for reads, writes in ((True, False), (False, True), (True, True)):
            assert await does.infer(OWNER, reads=reads, writes=writes) == ""
        assert content() != 2 * BYTES
        assert await does.unregister(OPERATOR, "r") == ""
        assert await does.status(OWNER) == []
        assert await does.infer(OWNER, reads=True, writes=False) == NOT_FOUND

    play(tmp_path, scenario, *KEYS, allow_shared_memory=True)


@pytest.mark.parametrize("way", [Rest, Grpc])
def test_regions_end_with_the_key_of_their_owner(tmp_path: Path, shared: Path, way: Callable[[Live], Way]) -> None:
    """And who has the name of that key next has none of them."""

    async def scenario(running: Live) -> None:
        does, control = way(running), running.server._access_control
        assert control is not None
        for secret in (OWNER, OTHER):
            registered = await running.http.post(
                "/v2/systemsharedmemory/region/r/register",
                headers=bearer(secret),
                json={"key": shared.name, "byte_size": 2 * len(BYTES)},
            )
            assert registered.status_code == 200, registered.text
        assert await does.status(OPERATOR) == (["r", "r"] if way is Rest else ["r"])

        access_file(tmp_path, *KEYS[1:])
        await control.look()
        assert running.server._regions is not None
        assert [owner for owner, _ in running.server._regions._regions] == ["other"]
        assert await does.infer(OTHER, reads=True, writes=False) == ""

        access_file(tmp_path, key("owner", secret_of(9), models=["m"], permissions=TENANT), *KEYS[1:])
        await control.look()
        assert await does.status(secret_of(9)) == []
        assert await does.infer(secret_of(9), reads=True, writes=False) == NOT_FOUND

    play(tmp_path, scenario, *KEYS, allow_shared_memory=True)


def test_a_key_that_goes_while_it_registers_a_region_leaves_none(
    tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gone = threading.Event(), threading.Event()

    def slow_user_of(host: str, port: int) -> int:
        begun.set()
        gone.wait(HANG_S)
        return user_of(host, port)

    monkeypatch.setattr(api, "user_of", slow_user_of)

    async def scenario(running: Live) -> None:
        control, regions = running.server._access_control, running.server._regions
        assert control is not None
        assert regions is not None
        registering = asyncio.create_task(
            running.http.post(
                "/v2/systemsharedmemory/region/r/register",
                headers=bearer(OWNER),
                json={"key": shared.name, "byte_size": 8},
            )
        )
        await asyncio.to_thread(begun.wait, HANG_S)
        access_file(tmp_path, *KEYS[1:])
        await control.look()
        gone.set()
        assert (await registering).status_code == 401
        assert not regions._regions

    play(tmp_path, scenario, *KEYS, allow_shared_memory=True)
