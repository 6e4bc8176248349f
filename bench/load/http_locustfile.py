"""Locust users over HTTP, with the body that BODY names: V1 JSON, V2 JSON or V2 binary.

    BODY=body locust -f bench/load/http_locustfile.py --headless -u 32 -r 32 -t 10s \\
        --host http://127.0.0.1:8501 --path /v1/models/digits:predict

Each user sends its next request when the last was answered (closed loop). An answer counts as a failure
unless its status is a success and it has what the protocol promises.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from locust import FastHttpUser, constant, events, task

BODY = Path(os.environ.get("BODY", "body"))
PROMISED = (b'"predictions"', b'"outputs"')


@events.init_command_line_parser.add_listener
def _add_path(parser: ArgumentParser) -> None:
    parser.add_argument("--path", default="/v1/models/digits:predict", help="Where requests go")


class Caller(FastHttpUser):
    wait_time = constant(0)

    def on_start(self) -> None:
        self.content = BODY.read_bytes()
        lines = Path(f"{BODY}.headers").read_text().splitlines()
        self.headers: dict[str, Any] = dict(line.split(": ", 1) for line in lines)

    @task
    def predict(self) -> None:
        path = self.environment.parsed_options.path
        with self.client.post(path, data=self.content, headers=self.headers, catch_response=True) as reply:
            if not any(key in (reply.content or b"") for key in PROMISED):
                reply.failure(f"status {reply.status_code}: {(reply.content or b'')[:100]!r}")
