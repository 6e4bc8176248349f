"""What one writes in an afternoon: a route, a queue, a task that batches, a thread that runs the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from bench.peers.saved_model import MAX_BATCH_SIZE, Array, Signature

Waiting = tuple[Array, asyncio.Future[Any]]


class PredictRequest(BaseModel):
    instances: list[Any]


class Batcher:
    def __init__(self) -> None:
        self.signature = Signature()
        self.queue: asyncio.Queue[Waiting] = asyncio.Queue()
        self.thread = ThreadPoolExecutor(1)

    async def predict(self, row: Array) -> Array:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await self.queue.put((row, answer))
        return await answer

    async def run(self) -> None:
        while True:
            waiting = await self._collect()
            rows = [row for row, _ in waiting]
            answers = await asyncio.get_running_loop().run_in_executor(self.thread, self.signature.run_rows, rows)
            for (_, future), answer in zip(waiting, answers, strict=True):
                future.set_result(answer)

    async def _collect(self) -> list[Waiting]:
        waiting = [await self.queue.get()]
        due = asyncio.get_running_loop().time() + 0.001
        while len(waiting) < MAX_BATCH_SIZE:
            try:
                async with asyncio.timeout_at(due):
                    waiting.append(await self.queue.get())
            except TimeoutError:
                break
        return waiting


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.batcher = Batcher()
    task = asyncio.create_task(app.state.batcher.run())
    yield
    task.cancel()


app = FastAPI(lifespan=lifespan)


@app.post("/predict")
async def predict(request: PredictRequest) -> dict[str, Any]:
    batcher: Batcher = app.state.batcher
    answers = await asyncio.gather(*[batcher.predict(batcher.signature.array(row)) for row in request.instances])
    return {"predictions": [answer.tolist() for answer in answers]}
