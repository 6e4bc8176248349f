"""Models of text, tables, assets and images."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

from tests.awkward.awkward_model import AwkwardModel, model, of, save, texts, variable

_TEXT = of("text", None, dtype=tf.string)
_TEXTS = [
    {"text": each}
    for each in (
        texts(b"the cat sat"),
        texts(b"", b"  ", b"A b  C"),
        texts("GR\u00dcN caf\u00e9".encode(), b"x"),
        texts(b"one two three four five six seven", b"one"),
        texts(b"nul\0byte two", b"\0"),
    )
]
#: No protocol may take these bytes for text.
_BYTES = {"text": texts(b"\xff\xfe \x80", b"a\0b", b"\0\0", b"")}


def _vocabulary(*words: str) -> Any:
    with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
        file.write("\n".join(words))
    return tf.lookup.TextFileInitializer(
        file.name, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
    )


def vocabulary(path: Path) -> None:
    """A hash table that is filled from an asset, with buckets for what it does not hold."""
    module = tf.Module()
    module.table = tf.lookup.StaticVocabularyTable(_vocabulary("the", "cat", "sat"), 2)
    save(path, lambda text: {"id": module.table.lookup(text)}, _TEXT, module=module)


def table_of_constants(path: Path) -> None:
    """A hash table that an initializer in the graph fills."""
    module = tf.Module()
    pairs = tf.lookup.KeyValueTensorInitializer(tf.constant(["a", "b", ""]), tf.constant([1.0, 2.0, -1.0]))
    module.table = tf.lookup.StaticHashTable(pairs, float("nan"))
    save(path, lambda text: {"value": module.table.lookup(text)}, _TEXT, module=module)


def asset_read_in_each_call(path: Path) -> None:
    """The graph opens the asset's file itself."""
    module = tf.Module()
    with tempfile.NamedTemporaryFile("wb", suffix=".bin", delete=False) as file:
        file.write(b"suffix")
    module.asset = tf.saved_model.Asset(file.name)
    save(path, lambda text: {"y": tf.strings.join([text, tf.io.read_file(module.asset)])}, _TEXT, module=module)


def lowered(path: Path) -> None:
    """Text in, text out; lengths in bytes and in characters."""

    def call(text: Any) -> Any:
        return {"lower": tf.strings.lower(text), "bytes": tf.strings.length(text), "twice": tf.strings.join([text] * 2)}

    save(path, call, _TEXT)


def any_bytes(path: Path) -> None:
    """Strings that are no text, as they came."""
    save(path, lambda text: {"same_bytes": tf.identity(text), "length": tf.strings.length(text)}, _TEXT)


def counted_words(path: Path) -> None:
    """Split into a ragged tensor, and reduced again within the graph."""

    def call(text: Any) -> Any:
        words = tf.strings.split(text)
        return {"words": words.row_lengths(), "longest": tf.reduce_max(tf.strings.length(words), 1)}

    save(path, call, _TEXT)


def split_words(path: Path) -> None:
    """The words, padded to the longest row of the batch: the shape of the answer depends on company."""
    save(path, lambda text: {"words": tf.strings.split(text).to_tensor(b"")}, _TEXT)


def bag_of_words(path: Path) -> None:
    """Words to buckets to an embedding: preprocessing inside the model, through a sparse tensor."""
    module = tf.Module()
    module.embedding = variable(16, 4)

    def call(text: Any) -> Any:
        words = tf.strings.split(tf.strings.regex_replace(tf.strings.lower(text), "[^a-z ]", ""))
        ids = tf.strings.to_hash_bucket_fast(words, 16).to_sparse()
        return {"mean": tf.nn.safe_embedding_lookup_sparse(module.embedding, ids, combiner="mean")}

    save(path, call, _TEXT, module=module)


def parsed_numbers(path: Path) -> None:
    """Text to numbers: whatever is none is an error of its request alone."""
    save(path, lambda text: {"y": tf.strings.to_number(text)}, _TEXT)


def decoded_images(path: Path) -> None:
    """PNG to the mean colour: images of any size share a call, and what is no image fails alone."""

    def one(content: Any) -> Any:
        return tf.reduce_mean(tf.cast(tf.io.decode_png(content, channels=3), tf.float32), [0, 1])

    def call(image_bytes: Any) -> Any:
        return {"mean": tf.map_fn(one, image_bytes, fn_output_signature=tf.TensorSpec([3], tf.float32))}

    save(path, call, of("image_bytes", None, dtype=tf.string))


def _png(size: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(size).integers(0, 255, (size, size, 3), np.uint8)).save(file, "PNG")
    return file.getvalue()


_IMAGES = [{"image_bytes": texts(*map(_png, sizes))} for sizes in ((3,), (5, 9), (2, 2, 40), (17,))]

MODELS: Sequence[AwkwardModel] = (
    model(vocabulary, [{"text": texts(b"the", b"cat", b"no")}, {"text": texts(b"sat")}, _BYTES, {"text": texts()}]),
    model(table_of_constants, [{"text": texts(b"a", b"c")}, {"text": texts(b"")}, {"text": texts(b"b")}, _BYTES]),
    model(asset_read_in_each_call, _TEXTS),
    model(lowered, [*_TEXTS, {"text": texts()}]),
    model(any_bytes, [*_TEXTS, _BYTES, {"text": texts(b"\0" * 300, b"\x80")}]),
    model(counted_words, _TEXTS),
    model(split_words, _TEXTS),
    model(bag_of_words, [*_TEXTS, {"text": texts(b"?!")}]),
    model(
        parsed_numbers,
        [{"text": texts(b"1", b"-2.5")}, {"text": texts(b"1e30")}, {"text": texts(b"nan", b"3", b"inf")}],
        rejects=[{"text": texts(b"one")}, {"text": texts(b"1", b"")}],
    ),
    model(decoded_images, _IMAGES, rejects=[{"image_bytes": texts(b"GIF89a")}, {"image_bytes": texts(_png(3), b"")}]),
)
