"""Small models of Keras 3 and Keras 2 of many makes, with random weights; a function makes each, by the zoo's name."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

#: Makes a model with `keras` or `tf_keras`.
Maker = Callable[[ModuleType], Any]


def library(name: str) -> ModuleType:
    """keras, on TensorFlow, or tf_keras."""
    os.environ["KERAS_BACKEND"] = "tensorflow"
    return importlib.import_module(name)


def save(model: Any, path: Path) -> Path:
    """Saves a model; warnings that HDF5 is old are no faults."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save(str(path))
    return path


def made(maker: Maker, name: str) -> Any:
    """The model of a maker, with random weights."""
    random = np.random.default_rng(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = maker(library(name))
        for each in model.trainable_weights:
            each.assign(random.normal(0, 0.3, each.shape))
    return model


# --- layers of every kind ---


def mlp(keras: ModuleType) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((20,), name="features"),
            layers.Dense(16, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Dense(3, activation="softmax", name="probabilities"),
        ]
    )


def trained_mlp(keras: ModuleType) -> Any:
    model = mlp(keras)
    model.compile("adam", lambda true, predicted: tf.reduce_mean((true - predicted) ** 2))
    model.fit(np.ones((8, 20), "float32"), np.ones((8, 3), "float32"), verbose=0)
    return model


def without_input(keras: ModuleType) -> Any:
    model = keras.Sequential([keras.layers.Dense(4, activation="gelu"), keras.layers.Dense(2, name="out")])
    model.build((None, 7))
    return model


def images(keras: ModuleType) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((12, 12, 1), name="image"),
            layers.Conv2D(4, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(5, name="scores"),
        ]
    )


def mobile_images(keras: ModuleType) -> Any:
    layers = keras.layers
    image = keras.Input((24, 24, 3), name="image")
    found = layers.RandomFlip()(layers.Rescaling(1 / 255)(image))
    found = layers.DepthwiseConv2D(3)(layers.Conv2D(4, 3, strides=2)(found))
    found = layers.ReLU(6.0)(layers.BatchNormalization()(layers.SeparableConv2D(6, 3)(found)))
    return keras.Model(image, layers.Dense(5, name="scores")(layers.GlobalAveragePooling2D()(found)))


def masks(keras: ModuleType) -> Any:
    layers = keras.layers
    image = found = keras.Input((16, 16, 3), name="image")
    kept = []
    for filters in (2, 4):
        found = layers.Conv2D(filters, 3, padding="same", activation="relu")(found)
        kept.append(found)
        found = layers.MaxPooling2D()(found)
    for filters in (4, 2):
        found = layers.Concatenate()([layers.UpSampling2D()(found), kept.pop()])
        found = layers.Conv2D(filters, 3, padding="same", activation="relu")(found)
    return keras.Model(image, layers.Conv2D(1, 1, activation="sigmoid", name="mask")(found))


def volumes(keras: ModuleType) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [keras.Input((6, 6, 6, 1), name="scan"), layers.Conv3D(2, 3), layers.GlobalMaxPooling3D(), layers.Dense(1)]
    )


def series(keras: ModuleType) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((30, 2), name="series"),
            layers.Conv1D(4, 3, padding="causal", dilation_rate=2),
            layers.Conv1D(2, 1, name="next"),
        ]
    )


def masked_tokens(keras: ModuleType) -> Any:
    layers = keras.layers
    tokens = keras.Input((12,), dtype="int32", name="tokens")
    found = layers.LSTM(6)(layers.Embedding(50, 8, mask_zero=True)(tokens))
    return keras.Model(tokens, layers.Dense(2, name="scores")(found))


def both_ways(keras: ModuleType) -> Any:
    layers = keras.layers
    rows = keras.Input((9, 4), name="rows")
    found = layers.Bidirectional(layers.GRU(3, return_sequences=True), name="both")(rows)
    return keras.Model(rows, layers.Dense(2, name="each")(found))


def attention(keras: ModuleType) -> Any:
    layers = keras.layers
    rows = keras.Input((10, 8), name="rows")
    found = layers.LayerNormalization()(layers.Add()([rows, layers.MultiHeadAttention(2, 4)(rows, rows)]))
    return keras.Model(rows, layers.Dense(3, name="scores")(layers.GlobalAveragePooling1D()(found)))


def two_in_two_out(keras: ModuleType) -> Any:
    layers = keras.layers
    one, two = keras.Input((5,), name="one"), keras.Input((3,), name="two")
    found = layers.Dense(4)(layers.Concatenate()([one, two]))
    return keras.Model([one, two], [layers.Dense(2, name="left")(found), layers.Dense(1, name="right")(found)])


def by_keys(keras: ModuleType) -> Any:
    layers = keras.layers
    one, two = keras.Input((5,), name="one"), keras.Input((3,), name="two")
    found = layers.Dense(4)(layers.Concatenate()([one, two]))
    outputs = {"price": layers.Dense(1)(found), "risk": layers.Dense(2)(found)}
    return keras.Model({"one": one, "two": two}, outputs)


def texts(keras: ModuleType) -> Any:
    layers = keras.layers
    text = keras.Input((), dtype="string", name="text")
    vectors = layers.TextVectorization(max_tokens=20, output_sequence_length=6)
    vectors.adapt(tf.constant(["the cat sat", "on the mat", "a dog"]))
    found = layers.GlobalAveragePooling1D()(layers.Embedding(20, 4)(vectors(text)))
    return keras.Model(text, layers.Dense(2, name="scores")(found))


def columns(keras: ModuleType) -> Any:
    layers = keras.layers
    city, sizes = keras.Input((1,), dtype="string", name="city"), keras.Input((2,), name="sizes")
    normal = layers.Normalization()
    normal.adapt(np.arange(20, dtype="float32").reshape(10, 2))
    known = layers.StringLookup(vocabulary=["0", "Bonn", "Rome"], output_mode="one_hot")(city)
    found = layers.Concatenate()([known, normal(sizes)])
    return keras.Model({"city": city, "sizes": sizes}, layers.Dense(1, name="price")(found))


def hashed(keras: ModuleType) -> Any:
    layers = keras.layers
    city = keras.Input((1,), dtype="string", name="city")
    found = layers.CategoryEncoding(16, output_mode="multi_hot")(layers.Hashing(16)(city))
    return keras.Model(city, layers.Dense(2, name="scores")(found))


def inner_model(keras: ModuleType) -> Any:
    inner = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4, activation="gelu")], name="inner")
    rows = keras.Input((6,), name="rows")
    found = keras.layers.Add()([inner(rows), inner(keras.layers.Rescaling(2.0)(rows))])
    return keras.Model(rows, keras.layers.Dense(1, name="sum")(found))


def mixed_precision(keras: ModuleType) -> Any:
    rows = keras.Input((6,), name="rows")
    found = keras.layers.Dense(4, dtype="mixed_float16")(rows)
    return keras.Model(rows, keras.layers.Dense(3, dtype="float32", name="out")(found))


def one_row(keras: ModuleType) -> Any:
    layers = keras.layers
    image = keras.Input(batch_shape=(1, 6, 6, 2), name="image")
    return keras.Model(image, layers.Dense(2, name="scores")(layers.Flatten()(layers.Conv2D(3, 3)(image))))


def stateful(keras: ModuleType) -> Any:
    rows = keras.Input(batch_shape=(2, 4, 3), name="rows")
    return keras.Model(rows, keras.layers.Dense(2, name="out")(keras.layers.LSTM(5, stateful=True)(rows)))


def sparse_bags(keras: ModuleType) -> Any:
    bag = keras.Input((10,), sparse=True, name="bag")
    return keras.Model(bag, keras.layers.Dense(2, name="scores")(bag))


# --- of one library alone ---


def quantized(keras: ModuleType) -> Any:
    model = keras.Sequential(
        [keras.Input((16,), name="rows"), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(4, name="out")]
    )
    model.quantize("int8")
    return model


def operations(keras: ModuleType) -> Any:
    rows = keras.Input((8,), name="rows")
    return keras.Model(rows, [keras.ops.softmax(rows), keras.ops.sum(keras.ops.abs(rows), axis=-1, keepdims=True)])


def tensorflow_functions(keras: ModuleType) -> Any:
    rows = keras.Input((16, 8), name="rows")
    found = tf.nn.relu(rows) * 2.0 + tf.reduce_mean(rows, axis=-1, keepdims=True)
    found = tf.reshape(tf.concat([found, rows[:, :, :3]], -1), [-1, 16, 11])
    return keras.Model(rows, keras.layers.Dense(3, name="out")(found))


def ragged_words(keras: ModuleType) -> Any:
    words = keras.Input((None,), ragged=True, dtype="int64", name="words")
    found = keras.layers.LSTM(4)(keras.layers.Embedding(9, 3)(words))
    return keras.Model(words, keras.layers.Dense(2, name="scores")(found))
