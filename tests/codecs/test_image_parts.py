from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from app.codecs.image_parts import check_parts
from app.core.errors import InvalidRequest
from tests.budgets.wire import png_chunk, png_file

PIXELS = np.random.default_rng(1).integers(0, 255, (200, 200, 3), np.uint8)


def saved(format_: str, **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, format_, **options)
    return file.getvalue()


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"icc_profile": bytes(200_000)}, {"comment": b"x"}])
def test_what_pillow_writes_as_jpeg_has_few_parts(options: dict[str, object]) -> None:
    check_parts("JPEG", saved("JPEG", **options))


def test_what_pillow_writes_as_png_has_few_parts() -> None:
    check_parts("PNG", saved("PNG", icc_profile=bytes(2000)))


JPEG = saved("JPEG")


@pytest.mark.parametrize("part", [b"\xff", b"\xff\xe1\0\2", b"\0", b"\xff\xd0", b"\xff\xff"])
def test_a_jpeg_of_very_many_segments_is_rejected(part: bytes) -> None:
    with pytest.raises(InvalidRequest, match=r"The JPEG image has more than 2.. parts"):
        check_parts("JPEG", JPEG[:2] + part * 4000 + JPEG[2:])


def test_a_jpeg_of_very_many_scans_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="more than 64 scans"):
        check_parts("JPEG", JPEG[:-2] + b"\xff\xda\0\2" * 500)


def test_a_png_of_very_many_chunks_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match=r"The PNG image has more than 2.. parts"):
        check_parts("PNG", png_file(png_chunk(b"tEXt", b"") * 1000))
    with pytest.raises(InvalidRequest, match="more than one colour profile"):
        check_parts("PNG", png_file(png_chunk(b"iCCP", b"") * 2))
