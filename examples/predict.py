# ruff: noqa: T201 - an example shows what it found
"""Reads handwritten digits with a running server.

`make setup` installs what it needs; then: .venv/bin/python examples/predict.py [http://host:port]
"""

import asyncio
import json
import sys
from pathlib import Path

import numpy as np
from ferry_client import AsyncClient, Client, ServingError

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8501"
SAMPLES = json.loads((Path(__file__).parent.parent / "models/digits/samples.json").read_text())["samples"]
IMAGES = np.array([sample["image"] for sample in SAMPLES], np.float32)
LABELS = np.array([sample["label"] for sample in SAMPLES])


def all_in_one_call() -> None:
    with Client(URL) as client:
        probabilities = client.predict("digits", {"image": IMAGES}, timeout_s=5.0)["probabilities"]
    print(f"{np.mean(probabilities.argmax(axis=1) == LABELS):.1%} of {len(LABELS)} digits are right")


async def one_call_each() -> None:
    """The server makes batches of calls that come at the same time."""
    async with AsyncClient(URL) as client:
        replies = await asyncio.gather(*(client.predict("digits", image[np.newaxis]) for image in IMAGES))
    guesses = np.array([reply["probabilities"][0].argmax() for reply in replies])
    print(f"{np.mean(guesses == LABELS):.1%} of {len(LABELS)} digits are right")


def a_mistake() -> None:
    with Client(URL) as client:
        try:
            client.predict("digits", {"picture": IMAGES})
        except ServingError as error:
            print(f"{type(error).__name__} ({error.status}): {error}")


all_in_one_call()
asyncio.run(one_call_each())
a_mistake()
