"""Serialized tf.Examples and tf.SequenceExamples with given features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import STRING, Array
from app.runtimes.tensorflow.accepted_values.value_facts import Facts, Part

#: Makes values of a part.
MakeValues = Callable[[Facts, tuple[int, ...]], Array]

#: The most values of a feature that may have any number of them, and steps of a sequence. Chosen.
_FREE_VALUES, _STEPS = 3, 2


def example_of(parts: Sequence[Part], values: MakeValues, random: np.random.Generator) -> bytes:
    features = {part.key.decode(): _feature(part, values, random) for part in parts}
    return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def sequence_of(parts: Sequence[Part], values: MakeValues, random: np.random.Generator) -> bytes:
    context = {part.key.decode(): _feature(part, values, random) for part in parts if not part.steps}
    lists = {
        part.key.decode(): tf.train.FeatureList(feature=[_feature(part, values, random) for _ in range(_STEPS)])
        for part in parts
        if part.steps
    }
    sequence = tf.train.SequenceExample(
        context=tf.train.Features(feature=context), feature_lists=tf.train.FeatureLists(feature_list=lists)
    )
    return bytes(sequence.SerializeToString())


def _feature(part: Part, values: MakeValues, random: np.random.Generator) -> Any:
    free = int(random.integers(1, _FREE_VALUES, endpoint=True))
    count = free if part.kind != "dense" else int(np.prod([free if size < 0 else size for size in part.shape]))
    made = values(part.facts, (count,))
    if part.facts.dtype == STRING:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=made.tolist()))
    if np.issubdtype(part.facts.dtype, np.inexact):
        return tf.train.Feature(float_list=tf.train.FloatList(value=made.tolist()))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=made.astype(np.int64).tolist()))
