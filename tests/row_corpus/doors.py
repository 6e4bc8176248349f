"""Doors: what clients send, and how the graph makes x [rows, 4] of it. Most of them reject made-up values."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

from app.core.inference import Array
from tests.row_corpus.row_case import WIDTH, Door, Inputs, halves, spec, texts

#: Identifiers of products: a lookup of any other one fails.
FIRST_ID, IDS = 100_000, 64

WORDS = tuple(f"word{number}".encode() for number in range(17))


def _drawn(
    write: Callable[[np.random.Generator, int], Array], name: str
) -> Callable[[np.random.Generator, int], Inputs]:
    return lambda rng, rows: {name: write(rng, rows)}


def example_of(**features: Any) -> bytes:
    """A serialized tf.Example of floats, integers and bytes."""

    def feature(values: Any) -> Any:
        if isinstance(values[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        if isinstance(values[0], int):
            return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))

    features = {name: feature(values) for name, values in features.items()}
    content: bytes = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    return content


def _examples(rng: np.random.Generator, rows: int) -> Array:
    return texts([example_of(x=[float(each) for each in row]) for row in halves(rng, rows, WIDTH)])


def _read_examples(examples: Any) -> Any:
    return tf.io.parse_example(examples, {"x": tf.io.FixedLenFeature([WIDTH], tf.float32)})["x"]


def _dates(rng: np.random.Generator, rows: int) -> Array:
    return texts(
        [b"%04d-%02d-%02d" % (rng.integers(1990, 2030), *rng.integers(1, 29, 2) % 12 + 1) for _ in range(rows)]
    )


def _read_dates(dates: Any) -> Any:
    parts = [tf.strings.to_number(tf.strings.substr(dates, at, wide)) for at, wide in ((0, 4), (5, 2), (8, 2))]
    year, month, day = parts
    return tf.stack([year - 2000.0, month, day, month - day], 1)


def _ids(rng: np.random.Generator, rows: int) -> Array:
    return (FIRST_ID + rng.integers(0, IDS, (rows, WIDTH))).astype(np.int64)


def _read_ids(ids: Any) -> Any:
    known = [
        tf.debugging.assert_greater_equal(ids, np.int64(FIRST_ID), "id: unknown"),
        tf.debugging.assert_less(ids, np.int64(FIRST_ID + IDS), "id: unknown"),
    ]
    with tf.control_dependencies([each for each in known if each is not None]):
        place = tf.identity(ids) - FIRST_ID
    return tf.gather(tf.constant(np.arange(IDS, dtype=np.float32) % 9 - 4), place)


def _jpegs(rng: np.random.Generator, rows: int) -> Array:
    return texts([_jpeg(rng) for _ in range(rows)])


def _jpeg(rng: np.random.Generator) -> bytes:
    content = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(content, "JPEG")
    return content.getvalue()


def _read_jpegs(images: Any) -> Any:
    def one(image: Any) -> Any:
        return tf.reshape(tf.cast(tf.io.decode_jpeg(image, channels=3), tf.float32), [8, 8, 3])

    pixels = tf.map_fn(one, images, fn_output_signature=tf.TensorSpec([8, 8, 3], tf.float32))
    return tf.reduce_mean(pixels, [2, 3])[:, :WIDTH]


def _lines(rng: np.random.Generator, rows: int) -> Array:
    return texts([b",".join(b"%.1f" % each for each in row) for row in halves(rng, rows, WIDTH)])


def _read_lines(lines: Any) -> Any:
    return tf.stack(tf.io.decode_csv(lines, [tf.constant([], tf.float32)] * WIDTH), 1)


def _words(rng: np.random.Generator, rows: int) -> Array:
    return texts([WORDS[each] for each in rng.integers(0, len(WORDS), rows * WIDTH)], rows, WIDTH)


def _read_words(words: Any) -> Any:
    """Words with a number at their end; others are no number, which fails."""
    return tf.strings.to_number(tf.strings.substr(words, 4, 2)) - 8.0


def _numbers(rng: np.random.Generator, rows: int) -> Array:
    return rng.integers(1, 9, (rows, WIDTH)).astype(np.int32)


def _read_numbers(counts: Any) -> Any:
    """Counts of which none may be 0."""
    with tf.control_dependencies([tf.debugging.assert_positive(counts, "counts must be positive")]):
        return tf.cast(counts, tf.float32)


PLAIN = Door(
    specs=[spec("x", None, WIDTH)],
    read=lambda x: x,
    draw=_drawn(lambda rng, rows: halves(rng, rows, WIDTH), "x"),
    rejects=False,
)
EXAMPLES = Door(
    specs=[spec("examples", None, dtype=tf.string)], read=_read_examples, draw=_drawn(_examples, "examples")
)
DATES = Door(specs=[spec("dates", None, dtype=tf.string)], read=_read_dates, draw=_drawn(_dates, "dates"))
ID_DOOR = Door(specs=[spec("ids", None, WIDTH, dtype=tf.int64)], read=_read_ids, draw=_drawn(_ids, "ids"))
JPEGS = Door(specs=[spec("images", None, dtype=tf.string)], read=_read_jpegs, draw=_drawn(_jpegs, "images"))
LINES = Door(specs=[spec("lines", None, dtype=tf.string)], read=_read_lines, draw=_drawn(_lines, "lines"))
WORD_DOOR = Door(specs=[spec("words", None, WIDTH, dtype=tf.string)], read=_read_words, draw=_drawn(_words, "words"))
COUNTS = Door(specs=[spec("counts", None, WIDTH, dtype=tf.int32)], read=_read_numbers, draw=_drawn(_numbers, "counts"))
