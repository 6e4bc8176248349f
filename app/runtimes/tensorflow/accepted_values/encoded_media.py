"""Small images and sounds in the formats that graphs decode, each with different contents."""

from __future__ import annotations

import struct

import numpy as np
import tensorflow as tf

from app.core.inference import Array

#: The most pixels of an image. Chosen.
_MOST_PIXELS = 1 << 20

#: The patches of one colour along each side of an image, which keep it small. Chosen.
_PATCHES = 8

#: The samples of a second of sound. Chosen.
_RATE = 16_000


def encoded_image(operation: str, shape: tuple[int, int, int], random: np.random.Generator) -> bytes:
    """An image [height, width, channels] in the format of a decoding operation."""
    pixels = _pixels(shape, random)
    channels = shape[2]
    if operation == "DecodeBmp":
        return _bmp(pixels)
    if operation == "DecodeGif":
        return _gif(pixels)
    with tf.device("CPU"):
        encode = tf.io.encode_png if operation == "DecodePng" or channels not in {1, 3} else tf.io.encode_jpeg
        return bytes(encode(pixels).numpy())


def encoded_wav(samples: int, channels: int, random: np.random.Generator) -> bytes:
    with tf.device("CPU"):
        sound = random.uniform(-0.5, 0.5, (samples, channels)).astype(np.float32)
        return bytes(tf.audio.encode_wav(sound, _RATE).numpy())


def _pixels(shape: tuple[int, int, int], random: np.random.Generator) -> Array:
    height, width, channels = shape
    if height * width > _MOST_PIXELS:
        height, width = min(height, 1024), min(width, 1024)
    patches = random.integers(0, 256, (_PATCHES, _PATCHES, channels), dtype=np.uint8)
    rows, columns = (np.arange(size) * _PATCHES // max(size, 1) for size in (height, width))
    return np.asarray(patches[rows][:, columns])


def _bmp(pixels: Array) -> bytes:
    """A BMP file: 24 bits a pixel, blue first, from the bottom row up, each row filled up to 4 bytes."""
    height, width = pixels.shape[:2]
    colours = np.broadcast_to(pixels[..., :3], (height, width, 3))[::-1, :, ::-1]
    rows = np.zeros((height, -(-3 * width // 4) * 4), np.uint8)
    rows[:, : 3 * width] = colours.reshape(height, -1)
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, rows.nbytes, 2835, 2835, 0, 0)
    return struct.pack("<2sIHHI", b"BM", 54 + rows.nbytes, 0, 0, 54) + head + rows.tobytes()


def _gif(pixels: Array) -> bytes:
    """A GIF file: one frame of 64 grey levels, not compressed: a code of 7 bits a pixel, cleared before codes grow."""
    height, width = pixels.shape[:2]
    levels = (pixels[..., 0] >> 2).ravel().tolist()
    palette = b"".join(bytes([4 * level] * 3) for level in range(64))
    codes = [code for at in range(0, len(levels), 60) for code in (64, *levels[at : at + 60])] + [65]
    bits = np.unpackbits(np.asarray(codes, np.uint8)[:, None], axis=1, bitorder="little")[:, :7]
    data = np.packbits(bits.ravel(), bitorder="little").tobytes()
    blocks = b"".join(bytes([len(data[at : at + 255])]) + data[at : at + 255] for at in range(0, len(data), 255))
    head = b"GIF89a" + struct.pack("<HHBBB", width, height, 0xF5, 0, 0) + palette
    return head + b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x06" + blocks + b"\x00;"
