"""Asks a running server about trees, and shows what it says of each phrase:

python -m docs.examples.sentiment.ask '((the film) (is (slow (but good))))'
"""

from __future__ import annotations

import argparse
import json
import urllib.request

from docs.examples.sentiment.trees import forest_of, parse


def main() -> None:
    parser = argparse.ArgumentParser(description="Asks a running server about trees.")
    parser.add_argument("tree", nargs="+", help="such as '((the film) (is (slow (but good))))'")
    parser.add_argument("--url", default="http://127.0.0.1:8501")
    arguments = parser.parse_args()

    try:
        forest = forest_of([parse(text) for text in arguments.tree])
    except ValueError as error:
        parser.error(str(error))
    url = f"{arguments.url}/v1/models/sentiment:predict"
    body = json.dumps(forest.request).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"})) as reply:
        phrases = json.load(reply)["outputs"]["phrases"]

    phrases_of = zip(forest.nodes[len(forest.words) :], phrases, strict=True)
    for tree, (_, positive) in phrases_of:
        print(f"{positive:5.0%}  {tree}")


if __name__ == "__main__":
    main()
