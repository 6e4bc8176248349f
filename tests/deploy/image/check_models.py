"""What was left out of the image is missed by no model: all awkward models, over all protocols, and one of Keras.

The oracle is the direct call, in an environment that has everything.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf

from tests.awkward.catalog import DirectCalls, write
from tests.awkward.test_awkward_models import (
    BASE,
    test_a_request_in_company_is_answered_as_alone,  # noqa: F401 - pytest runs it here, with the fixtures below
)
from tests.deploy.image.container import START_S, Container, eventually
from tests.deploy.image.container import running as container_of
from tests.support.waiting import HANG_S

#: Seconds in which some variants are found for each model, xla among them.
BUDGET_S = "1"


@dataclass
class Remote:
    """Clients of a container's ports, as the drivers of protocols want them."""

    http: httpx.AsyncClient
    channel: grpc.aio.Channel


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("awkward")
    write(folder)
    inputs = tf.keras.Input((None,), dtype="int32", name="tokens")
    embedded = tf.keras.layers.Embedding(50, 8, mask_zero=True)(inputs)
    outputs = tf.keras.layers.Dense(3)(tf.keras.layers.LSTM(4)(embedded))
    tf.keras.Model(inputs, outputs).export(str(folder / "keras" / "1"), verbose=False)
    # Assets are written for their owner alone, and the container has a user of its own.
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


@pytest.fixture(scope="module")
def direct(folder: Path) -> DirectCalls:
    return DirectCalls(folder)


#: Some sixty models, each in several variants: they do not fit into the memory of the others' containers.
MEMORY = ["--memory", "6g"]


@pytest.fixture(scope="module")
def container(folder: Path) -> Iterator[Container]:
    left_to_the_image = {"runtime", "load_budget_s"}
    given = [f"FERRY_{name.upper()}={value}" for name, value in BASE.items() if name not in left_to_the_image]
    given += [f"FERRY_LOAD_BUDGET_S={BUDGET_S}", "FERRY_PAD_SHAPES=never", "FERRY_DRAIN_GRACE_S=0"]
    environment = [word for each in given for word in ("-e", each)]
    with container_of(*MEMORY, "-v", f"{folder}:/models:ro", *environment) as container:
        eventually(container.is_ready, 3 * START_S)
        yield container


@pytest.fixture(scope="module")
def running(container: Container) -> Iterator[tuple[str, asyncio.Runner, Remote]]:
    async def connect() -> Remote:
        http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{container.port}", timeout=HANG_S)
        return Remote(http, grpc.aio.insecure_channel(f"127.0.0.1:{container.grpc_port}"))

    with asyncio.Runner() as runner:
        remote = runner.run(connect())
        yield "the fastest, not padded", runner, remote
        runner.run(remote.http.aclose())
        runner.run(remote.channel.close())


def test_a_model_of_keras_needs_no_keras(container: Container, folder: Path) -> None:
    tokens = [[3, 1, 4, 1, 0], [5, 9, 2, 6, 5]]
    status, body = container.ask("POST", "/v1/models/keras:predict", {"instances": tokens})
    assert status == 200, body
    (expected,) = (
        tf.saved_model.load(str(folder / "keras" / "1"))
        .signatures["serving_default"](tokens=tf.constant(tokens, tf.int32))
        .values()
    )
    np.testing.assert_allclose(json.loads(body)["predictions"], expected, rtol=1e-5)


def test_some_models_are_compiled_by_xla(container: Container) -> None:
    """So that what is tried here includes the compiler."""
    _, body = container.ask("GET", "/metrics")
    assert b'variant="xla"' in body
