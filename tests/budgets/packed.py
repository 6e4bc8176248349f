"""Bodies of numbered and counted fields: MessagePack, protocol buffers, and the binary tensors of v2."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

from app.codecs.at_once import MOST_VALUES
from app.codecs.protobuf.messages import message_class
from app.core.inference import ModelSignature
from app.protocols.open_inference.grpc_messages import read_message
from app.protocols.open_inference.rest_bodies import read_request, split_body
from app.protocols.tensorflow_serving.grpc_example_lists import read_examples
from app.protocols.tensorflow_serving.grpc_predict_inputs import predict_inputs
from app.transports.grpc.messages_in_process import takes_long
from app.transports.grpc.services import parse_message
from tests.budgets.readers import FLOATS, LIMIT, STRINGS, Way, no_region, predicts, quietly, v2
from tests.budgets.search import EXAMPLE_BYTES, Form
from tests.budgets.wire import counted, distinct, field, number_field, repeated, text, varint, within
from tests.support.protocol_fakes import specs


def message_pack() -> Form:
    tensor = b"\x83\xa5dtype\xa7float32\xa5shape\x91\0\xa4data\xc4\0"
    words = (
        *(
            b"\x90",
            b"\x80",
            b"\x91",
            b"\x81\xa0",
            b"\1",
            b"\xc0",
            b"\xc3",
            b"\xa0",
            b"\xa2ab",
            b"\xc4\0",
            b"\xca\0\0\0\0",
        ),
        *(
            b"\xdd\0\0\x40\0",
            b"\xdc\x40\0",
            b"\xdf\0\0\x20\0\xa0",
            b"\xd4\5a",
            b"\xd6\xff\0\0\0\1",
            b"\xc7\0\1",
            tensor,
        ),
        *(tensor.replace(b"float32", b"float64"), tensor.replace(b"\x91\0", b"\x91\xcf" + b"\xff" * 8)),
        b"\x83\xa5dtype\xa6string\xa5shape\x91\0\xa4data\x90",
        b"\x81\xa1x\1",
        b"\x81\xa3b64\xa0",
        b"\xcf" + b"\xff" * 8,
    )
    booleans = b"\x81\xa6inputs\x81\xa1x\x83\xa5dtype\xa4bool\xa5shape\x91\xce%b\xa4data\xc6%b"

    def long_tensor(unit: tuple[bytes, ...], tail: tuple[bytes, ...], size: int) -> bytes:
        content = b"".join(repeated(unit, tail, size)).translate(bytes([0, 1] * 128))
        return booleans % ((struct.pack(">I", len(content)),) * 2) + content

    def strings(unit: tuple[bytes, ...], tail: tuple[bytes, ...], size: int) -> bytes:
        words = repeated(unit, tail, size)
        length = struct.pack(">I", len(words))
        start = b"\x81\xa6inputs\x81\xa1x\x83\xa5dtype\xa6string\xa5shape\x91\xce%b\xa4data\xdd%b" % (length, length)
        return start + b"".join(words)

    frames = (
        *(counted(b"\x81\xa9instances"), counted(b"\x81\xa6inputs"), counted(b"\x81\xa6inputs\x81\xa1x")),
        *(text(b"", b"", b""), text(b"\x81\xa6inputs", b"", b""), counted(b""), long_tensor, strings),
        lambda unit, tail, size: _keyed(b"\x81\xa6inputs", unit, tail, size),
    )
    # An element of one byte counts as what it takes in JSON, `[],`.
    ways = predicts("application/msgpack", FLOATS, STRINGS, specs(x=("bool", (None,))))
    return Form(frames, words, ways, lambda body: 3 * len(body))


def _keyed(before: bytes, unit: tuple[bytes, ...], tail: tuple[bytes, ...], size: int) -> bytes:
    """A map of the words by names that differ."""
    words = repeated(unit, tail, size * 2 // 3)
    items = b"".join(b"\xa5%05x%b" % (number, word) for number, word in enumerate(words))
    return before + b"\xdf" + struct.pack(">I", len(words)) + items


# --- protocol buffers ---

_TENSORS = (
    *(b"\x12\0", b"\x1a\0", b"\x0a\0", field(2, field(1, b"x")), field(2, field(2, b"")), b"\x42\0", b"\x50\1", b"\1"),
    *(b"\0", b"\x80", b"\xff", b"\x3a\0", b"\x22\0", b"\x2a\0", b"\x72\0", b"\x7a\0", b"\x12\2\x08\1", b"\x32\0", b"a"),
    *(b"\x2a\4\0\0\0\0", field(1, b"a"), b"\xa0\6\1", b"\x0a\2\x0a\0", field(8, b"ab")),
)


def _parser(name: str) -> Callable[[bytes], Any]:
    return partial(parse_message, message_class(name))


def _way(message: str, read: Callable[[float, bytes], object]) -> Way:
    """`read` gets the most strings, and the body."""

    def at_once(body: bytes) -> object:
        return None if takes_long(body, message_class(message).DESCRIPTOR) else read(MOST_VALUES, body)

    return Way(partial(read, inf), at_once)


def _of_type(dtype: int, sizes: tuple[int, ...]) -> bytes:
    shape = b"".join(field(2, number_field(1, size)) for size in sizes)
    return number_field(1, dtype) + field(2, shape)


def _named(name: bytes, number: int, word: bytes) -> bytes:
    return field(2, field(1, name % number) + field(2, _of_type(1, (1000, 1000)) + word[:0]))


def protobuf() -> Form:
    frames = (
        *(within(b""), within(b"", 2), within(field(1, b"x"), 2), within(b"", 2, 2)),
        distinct(b"", b"", partial(_named, b"%x")),
        *(
            _typed(dtype, number, size)
            for dtype, number in ((9, 10), (1, 5), (10, 11), (3, 7))
            for size in (10**4, 10**7)
        ),
        *(_typed(7, number, size) for number in (4, 8) for size in (2000, 10**5)),
        _shaped,
    )
    parse = _parser("tensorflow.serving.PredictRequest")

    def by_grpc(most: float, body: bytes) -> object:
        try:
            message = parse(body)
        except Exception as error:
            return str(error)
        return quietly(lambda _: predict_inputs(message, ModelSignature("f", FLOATS, {}), LIMIT, most))(b"")

    ways = predicts("application/x-protobuf", FLOATS, STRINGS, specs(x=("int64", (None,))))
    return Form(frames, _TENSORS, [*ways, _way("tensorflow.serving.PredictRequest", by_grpc)])


def _typed(dtype: int, number: int, elements: int) -> Any:
    """A tensor of so many elements, whose field has the words as packed values."""

    def frame(unit: tuple[bytes, ...], tail: tuple[bytes, ...], size: int) -> bytes:
        words = repeated(unit, tail, size)
        values = b"".join(words) if number == 8 else field(number, b"".join(words))
        return field(2, field(1, b"x") + field(2, _of_type(dtype, (elements,)) + values))

    return frame


def _shaped(unit: tuple[bytes, ...], tail: tuple[bytes, ...], size: int) -> bytes:
    shape = field(2, b"".join(repeated(unit, tail, size)))
    return field(2, field(1, b"x") + field(2, number_field(1, 1) + shape))


def example_lists() -> Form:
    """Examples over gRPC, with a context for all of them."""
    parse = _parser("tensorflow.serving.ClassificationRequest")
    feature = field(1, field(1, field(1, b"a") + field(2, field(3, b"\x0a\1\1"))))
    words = (b"\x0a\0", field(1, feature), field(1, b"\x0a\0"), field(1, field(1, b"\x0a\0")))

    def with_context(unit: tuple[bytes, ...], tail: tuple[bytes, ...], size: int) -> bytes:
        context = field(1, field(1, field(1, b"c" * 9000)))
        return field(2, field(2, b"".join(repeated(unit, tail, size)) + field(2, context)))

    def read(_: float, body: bytes) -> object:
        try:
            message = parse(body)
        except Exception as error:
            return str(error)
        return quietly(lambda _: read_examples(message))(b"")

    def charged(body: bytes) -> int:
        return len(body) + EXAMPLE_BYTES * body.count(b"\n")

    return Form(
        (within(b"", 1, 2), with_context), words, [_way("tensorflow.serving.ClassificationRequest", read)], charged
    )


def v2_messages() -> Form:
    parse = _parser("inference.ModelInferRequest")
    words = (
        *(b"\x2a\0", b"\x32\0", b"\x3a\0", b"\x22\0", b"\1", b"\0", b"\x42\0", b"\x0a\0", field(5, field(1, b"x"))),
        *(field(6, field(1, b"y")), field(4, field(1, b"a") + field(2, b"\x08\1")), b"\x18\1", b"\x80", b"a", b"\xff"),
    )
    tensor = field(1, b"x") + field(2, b"%b")

    def contents(datatype: bytes, number: int, shape: int) -> Any:
        def frame(unit: tuple[bytes, ...], tail: tuple[bytes, ...], size: int) -> bytes:
            values = b"".join(repeated(unit, tail, size))
            packed = values if number == 8 else field(number, values)
            head = field(1, b"x") + field(2, datatype) + field(3, varint(shape))
            return field(5, head + field(5, packed))

        return frame

    frames = (
        *(within(b""), within(b"", 5), within(tensor % b"", 5), within(b"", 6), within(b"", 4)),
        *(contents(b"FP32", 6, 10**4), contents(b"INT64", 3, 10**4), contents(b"BYTES", 8, 10**4)),
    )

    def way(inputs: Any) -> Callable[[bytes], object]:
        signature = ModelSignature("f", inputs, specs(y=("float32", (None,))))

        def read(most: float, body: bytes) -> object:
            try:
                message = parse(body)
            except Exception as error:
                return str(error)
            return quietly(lambda _: read_message(message, {"f": signature}, no_region, lambda s: s, most))(b"")

        return _way("inference.ModelInferRequest", read)

    return Form(frames, words, [way(FLOATS), way(STRINGS), way(specs(x=("int64", (None,))))])


# --- JSON, and bytes after it ---


def binary() -> Form:
    """JSON, and strings or numbers as bytes after it."""

    def frame(shape: int, unit: tuple[bytes, ...], tail: tuple[bytes, ...], size: int) -> bytes:
        words = repeated(unit, tail, size)
        content = b"".join(words)
        one = {
            "name": "x", "datatype": "BYTES", "shape": [shape or len(words)],
            "parameters": {"binary_data_size": len(content)},
        }  # fmt: skip
        return json.dumps({"inputs": [one]}).encode() + b"\n" + content

    strings = v2(STRINGS)
    words = (b"\0\0\0\0", b"\1\0\0\0a", b"\2\0\0\0ab", b"\xff\xff\xff\xff", b"\0", b"\x10\0\0\0" + bytes(16))
    bare = partial(_bare, ModelSignature("f", specs(x=("bool", (None,))), specs(y=("float32", (None,)))))
    frames = (partial(frame, 0), partial(frame, 7), text(b"", b"", b""))
    return Form(frames, words, [Way(*map(_newline_after_head, (strings.whole, strings.at_once))), quietly(bare)])


def _newline_after_head(read: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """The words may have line ends: the head is JSON of one line, and the line end belongs to it."""

    def reading(body: bytes) -> object:
        head, _, tail = body.partition(b"\n")
        return read(head + b"\n" + tail.replace(b"\n", b"\0")) if head.startswith(b"{") else None

    return reading


def _bare(signature: ModelSignature, body: bytes) -> object:
    head, tail = split_body(body, None, b"application/octet-stream")
    return read_request(head, tail, {"f": signature}, no_region, lambda seconds: seconds)
