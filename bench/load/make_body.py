"""Writes a request for a model, made from its metadata: FILE (the body) and FILE.headers, for predict.lua and Locust.

    python bench/load/make_body.py http://127.0.0.1:8501/v1/models/digits:predict body [--rows 1]   (V1, JSON)
    python bench/load/make_body.py http://127.0.0.1:8501/v2/models/digits/infer body [--form json]  (V2, binary or JSON)

Needs Ferry: run it with the Python of .venv (make setup).
"""

from __future__ import annotations

import argparse
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from app.bench.request_body import InferencePath


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--form", choices=("binary", "json"), default="binary", help="of the tensors in V2")
    options = parser.parse_args()
    parts = urlsplit(options.url)
    inference = InferencePath(parts.path)
    with urllib.request.urlopen(f"{parts.scheme}://{parts.netloc}{inference.metadata_path}", timeout=30) as reply:
        made = inference.make_body(reply.read(), options.rows, binary=options.form == "binary")
    options.file.write_bytes(made.content)
    Path(f"{options.file}.headers").write_text("".join(f"{name}: {value}\n" for name, value in made.headers.items()))
    print(f"{options.file}: {len(made.content)} bytes")


if __name__ == "__main__":
    main()
