"""Writes a request for a model, made from its metadata: FILE (the body) and FILE.headers, for predict.lua and Locust.

    python bench/load/make_body.py http://127.0.0.1:8501/v1/models/digits:predict body [--rows 1]   (V1, JSON)
    python bench/load/make_body.py http://127.0.0.1:8501/v2/models/digits/infer body [--form json]  (V2, binary or JSON)

Needs Ferry with its client: pip install 'ferry[client]'.
"""

from __future__ import annotations

import argparse
import json
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from app.bench.body import Endpoint


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--form", choices=("binary", "json"), default="binary", help="of the tensors in V2")
    options = parser.parse_args()
    parts = urlsplit(options.url)
    endpoint = Endpoint(parts.path)
    with urllib.request.urlopen(f"{parts.scheme}://{parts.netloc}{endpoint.metadata_path}", timeout=30) as reply:
        made = endpoint.request(reply.read(), options.rows)
    body, headers = made.body, dict(made.headers)
    if options.form == "json" and "/v2/" in parts.path:
        body, headers = (
            as_json(body, int(headers["inference-header-content-length"])),
            {"content-type": "application/json"},
        )
    options.file.write_bytes(body)
    Path(f"{options.file}.headers").write_text("".join(f"{name}: {value}\n" for name, value in headers.items()))
    print(f"{options.file}: {len(body)} bytes")


def as_json(body: bytes, head: int) -> bytes:
    """The same request with its numbers in the document."""
    types = {"FP32": "<f4", "FP64": "<f8", "INT32": "<i4", "INT64": "<i8", "UINT8": "u1", "INT8": "i1", "BOOL": "?"}
    document, tail = json.loads(body[:head]), body[head:]
    for tensor in document["inputs"]:
        size = tensor.pop("parameters")["binary_data_size"]
        tensor["data"] = np.frombuffer(tail[:size], types[tensor["datatype"]]).tolist()
        tail = tail[size:]
    return json.dumps({"inputs": document["inputs"]}).encode()


if __name__ == "__main__":
    main()
