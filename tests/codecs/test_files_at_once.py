"""Small files are decoded on the event loop, as anywhere else; large ones are left to a thread."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from app.codecs import npz
from app.codecs.at_once import TakesLong
from app.codecs.body_format import BodyFormat
from app.codecs.image import JPEG, PNG
from app.core.inference import Array, ModelSignature
from tests.support.protocol_fakes import specs

LIMIT = 64 << 20
PIXELS = ModelSignature("f", specs(x=("float32", (None, None, None, 3))), {})
FILES = ModelSignature("f", specs(x=("string", (None,))), {})
NUMBERS = ModelSignature("f", specs(x=("float32", (None,))), {})


def image(kind: str, side: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.zeros((side, side, 3), np.uint8)).save(file, kind)
    return file.getvalue()


def archive(size: int) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, x=np.random.default_rng(1).integers(0, 2, size).astype(np.float32))
    return file.getvalue()


def read(body_format: BodyFormat, body: bytes, signature: ModelSignature, at_once: bool) -> Array:
    return body_format.read(body, LIMIT, at_once=at_once).inputs(signature)["x"]


@pytest.mark.parametrize(("kind", "body_format"), [("JPEG", JPEG), ("PNG", PNG)])
def test_an_image_of_many_pixels_takes_long(kind: str, body_format: BodyFormat) -> None:
    small, large = image(kind, 200), image(kind, 300)
    np.testing.assert_array_equal(*[read(body_format, small, PIXELS, each) for each in (True, False)])
    assert read(body_format, large, PIXELS, at_once=False).shape == (1, 300, 300, 3)
    with pytest.raises(TakesLong):
        read(body_format, large, PIXELS, at_once=True)


def test_a_file_that_is_an_element_is_never_decoded() -> None:
    large = image("PNG", 300)
    assert read(PNG, large, FILES, at_once=True).tolist() == [large]


def test_an_archive_that_grows_takes_long() -> None:
    small, large = archive(1000), archive(300_000)
    np.testing.assert_array_equal(*[read(npz.FORMAT, small, NUMBERS, each) for each in (True, False)])
    assert read(npz.FORMAT, large, NUMBERS, at_once=False).size == 300_000
    with pytest.raises(TakesLong):
        read(npz.FORMAT, large, NUMBERS, at_once=True)
