"""The oracle is TensorFlow's own decoders."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.runtimes.tensorflow.accepted_values.encoded_media import encoded_image, encoded_wav

DECODERS: dict[str, Callable[[bytes], Any]] = {
    "DecodeJpeg": tf.io.decode_jpeg,
    "DecodePng": tf.io.decode_png,
    "DecodeBmp": tf.io.decode_bmp,
    "DecodeGif": tf.io.decode_gif,
    "DecodeImage": tf.io.decode_image,
    "DecodeAndCropJpeg": lambda image: tf.io.decode_and_crop_jpeg(image, [0, 0, 5, 5]),
}


@pytest.mark.parametrize("operation", DECODERS)
@pytest.mark.parametrize("shape", [(32, 32, 3), (17, 23, 3), (9, 5, 1)])
def test_images_decode_to_their_size_and_differ(operation: str, shape: tuple[int, int, int]) -> None:
    random = np.random.default_rng(1)
    one, other = (DECODERS[operation](encoded_image(operation, shape, random)).numpy() for _ in range(2))
    assert one.shape[-3:-1] == ((5, 5) if operation == "DecodeAndCropJpeg" else shape[:2])
    assert np.abs(one.astype(int) - other).mean() > 10


def test_a_huge_image_is_cut() -> None:
    image = encoded_image("DecodePng", (1 << 14, 1 << 14, 1), np.random.default_rng(1))
    assert tf.io.decode_png(image).shape == (1024, 1024, 1)


def test_a_sound_has_its_samples() -> None:
    sound = tf.audio.decode_wav(encoded_wav(400, 2, np.random.default_rng(1)))
    assert sound.audio.shape == (400, 2)
