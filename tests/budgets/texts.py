"""Bodies that are text: JSON of both protocols, examples, lines of streams, and queries of URLs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

from app.codecs.at_once import MOST_VALUES
from app.core.inference import ModelSignature
from app.protocols.streams.lines import LineCutter
from app.protocols.streams.rows import read_rows
from tests.budgets.readers import EXAMPLES, FLOATS, LIMIT, STRINGS, TWO, Way, predicts, quietly, rest, v2
from tests.budgets.search import EXAMPLE_BYTES, LINE_BYTES, LIST_BYTES, Form
from tests.budgets.wire import distinct, text

_JSON_WORDS = (
    *(
        b"[]",
        b"{}",
        b"1",
        b"1.5",
        b"-1e9",
        b"1e999",
        b"NaN",
        b"-NaN",
        b"Inf",
        b"-Inf",
        b"null",
        b"true",
        b'""',
        b'"ab"',
    ),
    *(b'"\\n"', b'"\\u00e9"', b'"\\ud800"', b'{"b64":""}', b'{"b64":"QQ=="}', b'{"b64":"A A"}', b'{"b64":"!"}'),
    *(b'{"x":1}', b'{"x":[1,2]}', b'{"y":1}', b'{"x":1,"y":[true,false]}', b'{"a":{}}', b"[1]", b"[1,2]", b"[[]]"),
    *(b"[[[1]]]", b'["a"]', b"12345678901234567890", b"x", b"[" * 30 + b"]" * 30, b'"Inf"', b"[1.0,2.0,3.0,4.0]"),
)


def json_() -> Form:
    frames = (
        *(text(b'{"instances":[', b"]}"), text(b'{"inputs":[', b"]}"), text(b'{"inputs":{"x":[', b"]}}")),
        *(text(b'{"inputs":{"x":1,"y":[', b"]}}"), text(b"[", b"]"), text(b'{"instances":[NaN,', b"]}")),
        text(b'{"inputs":{"x":1},"signature_name":[', b"]}"),
        distinct(b'{"inputs":{', b"}}", lambda number, word: b'"%x":%b' % (number, word), b","),
        distinct(b"{", b"}", lambda number, word: b'"%x":%b' % (number, word), b","),
        text(b'{"inputs":', b"", b""),
    )
    return Form(frames, _JSON_WORDS, predicts("application/json", FLOATS, STRINGS, TWO), _with_lists)


def _with_lists(body: bytes) -> int:
    return len(body) + LIST_BYTES * (body.count(b"[") + body.count(b"{"))


def examples() -> Form:
    words = (
        *(b"{}", b'{"a":1}', b'{"a":1.5}', b'{"a":"b"}', b'{"a":[]}', b'{"a":[1,2]}', b'{"a":{"b64":""}}', b"1"),
        *(b'{"a":1,"b":2.5}', b'{"a":[1,"b"]}', b'{"":true}', b'{"a":[{}]}', b'{"":["","",""]}', b'{"a":1e300}'),
    )
    context = b'{"context":{"c":"%b"},"examples":[' % (b"x" * 5000)
    many = b",".join(b'"%x":0' % number for number in range(500))
    frames = (
        *(text(b'{"examples":[', b"]}"), text(context, b"]}")),
        text(b'{"context":{%b},"examples":[' % many, b"]}"),
        distinct(b'{"examples":[{', b"}]}", lambda number, word: b'"%x":%b' % (number, word), b","),
    )
    read = [rest(EXAMPLES, "application/json", f"/v1/models/m:{method}") for method in ("classify", "regress")]
    return Form(frames, words, read, lambda body: len(body) + EXAMPLE_BYTES * (body.count(b"{") + body.count(b":")))


def infer() -> Form:
    head = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[%d,1],"data":['
    strings = head.replace(b"FP32", b"BYTES").replace(b",1]", b"]")
    words = (
        *_JSON_WORDS,
        *(b'{"name":"x"}', b'{"name":"y"}', b'{"name":"x","datatype":"FP32","shape":[],"data":[]}'),
        *(b'{"name":"y","parameters":{"classification":1}}', b'{"name":"","parameters":{}}'),
    )
    frames = (
        *(
            text(head % 9, b"]}]}"),
            text(head % 10**9, b"]}]}"),
            text(strings % 9, b"]}]}"),
            text(b'{"inputs":[', b"]}"),
        ),
        text(b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}],"outputs":[', b"]}"),
        text(b'{"inputs":[{"name":"x","datatype":"FP32","data":[1],"shape":[', b"]}]}"),
        text(b'{"parameters":{"priority":[', b"]}}"),
        distinct(b'{"parameters":{', b"}}", lambda number, word: b'"%x":%b' % (number, word), b","),
        text(b'{"inputs":[{"name":"x","parameters":{"binary_data_size":[', b"]}}]}"),
    )
    return Form(frames, words, [v2(FLOATS), v2(STRINGS)], _with_lists)


def queries() -> Form:
    words = (b"&output=y", b"&output=", b"&", b"%41", b"+", b"&a=b", b";", b"=", b"&signature_name=x", b"%ff")
    read = rest(FLOATS, "application/json")
    begin: Any = read
    ways = [lambda query: begin(b'{"instances":[[1.0]]}', query[: 64 * 1024])]
    return Form((text(b"a=", b"", b""), text(b"output=y", b"", b"")), words, ways)


def lines() -> Form:
    """Lines of a stream: cut, and read as blocks; a block that is rejected is halved until each line is alone."""
    words = (*_JSON_WORDS, b"", b" ", b"\r")

    def way(inputs: Any) -> Callable[[bytes], object]:
        signature = ModelSignature("serving_default", inputs, {})
        return Way(partial(_read_lines, signature, inf), partial(_read_lines, signature, MOST_VALUES))

    frames = (text(b"", b"\n", b"\n"), text(b"[", b"\n", b"\n"))
    return Form(frames, words, [way(FLOATS), way(STRINGS)], lambda body: len(body) + LINE_BYTES * body.count(b"\n"))


def _read_lines(signature: ModelSignature, most: float, body: bytes) -> object:
    cutter = LineCutter(64, LIMIT)
    for start in range(0, len(body), 65536):
        for block in cutter.feed(body[start : start + 65536]):
            quietly(lambda _, lines=block.lines: read_rows(lines, signature, most))(b"")  # type: ignore[misc]  # mypy infers no default
    return None
