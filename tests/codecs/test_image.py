from __future__ import annotations

import struct
import zlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.errors import BodyTooLarge
from app.codecs.image import JPEG, PNG, takes_image
from app.core.errors import InvalidRequest
from tests.support.bodies import image
from tests.support.protocol_fakes import Client, echo_model, signature_of, specs

GRAY = np.arange(6, dtype=np.uint8).reshape(2, 3) * 50
RGB = np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 14
RGBA = np.dstack([RGB, np.full((2, 3), 99, np.uint8)])


def read(body: bytes, dtype: Any, shape: Any, form: Any = PNG, limit: int = 1 << 20) -> Any:
    array = form.read(body, limit).inputs(signature_of(specs(x=(dtype, shape)), {}))["x"]
    assert array.dtype == specs(x=(dtype, shape))["x"].dtype
    return array


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float16", "float32", "float64", ml_dtypes.bfloat16])
def test_pixels_are_the_decoded_values_in_the_inputs_type(dtype: Any) -> None:
    array = read(image(GRAY), dtype, (None, 2, 3))
    assert array.shape == (1, 2, 3)
    assert array.astype(np.float64).tolist() == [GRAY.tolist()]


@pytest.mark.parametrize(
    ("pixels", "shape", "expected"),
    [
        (GRAY, (None, None, None), GRAY),
        (GRAY, (1, 2, 3), GRAY),
        (GRAY, (None, 2, 3, 1), GRAY[..., None]),
        (GRAY, (None, 2, 3, 3), np.dstack([GRAY] * 3)),
        (GRAY, (None, None, None, None), GRAY[..., None]),
        (RGB, (None, 2, 3, 3), RGB),
        (RGB, (None, None, None, None), RGB),
        (RGB, (None, 2, 3, 4), np.dstack([RGB, np.full((2, 3), 255, np.uint8)])),
        (RGBA, (None, 2, 3, 4), RGBA),
        (RGBA, (None, 2, 3, 3), RGB),
        (RGBA, (None, 2, 3, None), RGBA),
        (np.dstack([GRAY, GRAY]), (None, 2, 3, None), GRAY[..., None]),
        (GRAY > 100, (None, 2, 3), (GRAY > 100) * 255),
    ],
)
def test_channels_are_the_signatures(pixels: Any, shape: Any, expected: Any) -> None:
    array = read(image(pixels), "uint8", shape)
    assert array.shape == (1, *expected.shape)
    assert array[0].tolist() == expected.tolist()


def test_gray_is_the_luma_of_colours() -> None:
    luma = RGB @ np.array([0.299, 0.587, 0.114])
    assert np.abs(read(image(RGB), "uint8", (None, 2, 3))[0] - luma).max() <= 1


@pytest.mark.parametrize("options", [{}, {"transparency": b"\x00\x80"}])
def test_palettes(options: Any) -> None:
    body = image(GRAY, mode="P", **options)
    assert read(body, "uint8", (None, 2, 3)).shape == (1, 2, 3)
    assert read(body, "uint8", (None, 2, 3, None)).shape == (1, 2, 3, 3)
    assert read(body, "uint8", (None, 2, 3, 4)).shape == (1, 2, 3, 4)


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_jpeg(mode: str) -> None:
    body = image(np.full((8, 8, 3), 100, np.uint8), "JPEG", mode)
    array = read(body, "float32", (None, 8, 8, 3), JPEG)
    assert array.shape == (1, 8, 8, 3)
    assert np.abs(array - 100).max() <= 3


@pytest.mark.parametrize(("shape", "expected"), [((None,), (1,)), ((), ()), ((None, 1), (1, 1)), (None, (1,))])
def test_strings_take_the_file_as_it_is(shape: Any, expected: tuple[int, ...]) -> None:
    for form, body in ((PNG, image(GRAY)), (JPEG, b"whatever the model makes of it")):
        array = read(body, "string", shape, form)
        assert array.shape == expected
        assert array.reshape(-1)[0] == body


def damaged(content: bytes) -> bytes:
    """A PNG whose first pixel chunk has this content, and a right checksum."""
    body = image(GRAY)
    place = body.index(b"IDAT") - 4
    end = body.index(b"IEND") - 4
    chunk = struct.pack(">I", len(content)) + b"IDAT" + content + struct.pack(">I", zlib.crc32(b"IDAT" + content))
    return body[:place] + chunk + body[end:]


@pytest.mark.parametrize(
    ("body", "shape", "text"),
    [
        (image(GRAY), (None, 8, 8), "height 2 and width 3; expected height 8, width 8 for input 'x' uint8[?,8,8]"),
        (image(GRAY), (None, None, 4, 1), "height 2 and width 3; expected width 4 for input 'x' uint8[?,?,4,1]"),
        (image(GRAY), (None, 2), "Input 'x' uint8[?,2] cannot be an image"),
        (image(GRAY), (2, 2, 3), "Input 'x' uint8[2,2,3] cannot be an image"),
        (
            image(GRAY),
            (None, 2, 3, 2),
            "expected shape [N,H,W], or [N,H,W,C] with 1, 3 or 4 channels",
        ),
        (image(GRAY), None, "Input 'x' uint8<unknown rank> cannot be an image"),
        (image(GRAY, "JPEG"), (None, 2, 3), "The body is not a valid PNG image: it cannot be read"),
        (b"", (None, 2, 3), "The body is not a valid PNG image: it cannot be read"),
        (image(GRAY)[:-30], (None, 2, 3), "The body is not a valid PNG image"),
        (damaged(zlib.compress(b"\0")), (None, 2, 3), "The body is not a valid PNG image: image file is truncated"),
        (damaged(b"garbage"), (None, 2, 3), "The body is not a valid PNG image"),
        (image(GRAY.astype(np.uint16)), (None, 2, 3), "The body is not a valid PNG image: expected 8 bits a channel"),
    ],
)
def test_what_is_not_an_image_for_the_input_is_rejected(body: bytes, shape: Any, text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(body, "uint8", shape)
    assert text in str(caught.value)


@pytest.mark.parametrize("dtype", ["int8", "bool"])
def test_types_that_pixels_do_not_fit(dtype: str) -> None:
    with pytest.raises(InvalidRequest, match=f"Input 'x' has dtype uint8, which {dtype} cannot hold"):
        read(image(GRAY), dtype, (None, 2, 3))


def test_a_bomb_is_rejected_before_it_is_decoded() -> None:
    body = bytearray(image(GRAY))
    body[16:24] = struct.pack(">II", 60_000, 60_000)
    body[29:33] = struct.pack(">I", zlib.crc32(body[12:29]))
    with pytest.raises(BodyTooLarge, match="60000 x 60000 pixels, which take more than 1048576 bytes: max_body"):
        read(bytes(body), "uint8", (None, None, None, 3))
    with pytest.raises(InvalidRequest, match="height 60000"):
        read(bytes(body), "uint8", (None, 8, 8))


@given(st.binary(max_size=60), st.integers(0, 60))
def test_damaged_pixels_are_pixels_or_rejected(content: bytes, cut: int) -> None:
    for body in (damaged(content), damaged(zlib.compress(content)), image(GRAY)[:cut] + content):
        try:
            read(body, "uint8", (None, 2, 3))
        except InvalidRequest:
            continue


def test_which_signatures_take_images() -> None:
    assert takes_image(signature_of(specs(x=("float32", (None, 8, 8))), {}))
    assert takes_image(signature_of(specs(x=("string", (None,))), {}))
    assert not takes_image(signature_of(specs(x=("float32", (None, 8))), {}))
    assert not takes_image(signature_of(specs(x=("uint8", (None, 8, 8)), y=("uint8", (None,))), {}))


def test_the_reply_is_json_by_row() -> None:
    answer = Client(echo_model("uint8", (None, 2, 3))).predict(image(GRAY), {"content-type": "image/png"})
    assert answer.json() == {"predictions": [GRAY.tolist()]}
