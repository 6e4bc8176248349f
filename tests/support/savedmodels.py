"""Small SavedModels on disk, each to show one thing. `make_...(path)` writes folder `path` ('.../name/1')."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef, TensorInfo
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

Make = Callable[[Path], None]

#: What `every_dtype` echoes: TensorFlow's names of all types that an array can carry through a signature.
DTYPES = (
    *("bool", "string", "half", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)

#: Steps of `slow` that take about a second, give or take a machine.
SLOW_STEPS_A_SECOND = 150_000


def make_half_plus_two(path: Path) -> None:
    """x/2+2, as TensorFlow Serving's example model has it: predict, regress and classify."""
    module = tf.Module()
    module.half, module.two = tf.Variable(0.5), tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def predict(x: Any) -> Any:
        return {"y": x * module.half + module.two}

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.float32, name="inputs")])
    def regress(inputs: Any) -> Any:
        return {"outputs": inputs * module.half + module.two}

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.float32, name="inputs")])
    def classify(inputs: Any) -> Any:
        return {"scores": inputs * module.half + module.two}

    module.predict, module.regress, module.classify = predict, regress, classify
    names = {"serving_default": predict, "regress_x_to_y": regress, "classify_x_to_y": classify}
    tf.saved_model.save(module, str(path), signatures=names)
    _set_method(path, "regress_x_to_y", "tensorflow/serving/regress")
    _set_method(path, "classify_x_to_y", "tensorflow/serving/classify")


def make_with_defaults(path: Path) -> None:
    """x [batch, 2], scale [batch, 1], default 3, name [batch], default "four" -> y = x * scale, letters of the name."""
    specs = [
        tf.TensorSpec([None, 2], tf.float32, name="x"),
        tf.TensorSpec([None, 1], tf.float32, name="scale"),
        tf.TensorSpec([None], tf.string, name="name"),
    ]
    _save(path, specs, lambda x, scale, name: {"y": x * scale, "letters": tf.cast(tf.strings.length(name), tf.float32)})
    set_defaults(path, scale=[[3.0]], name=[b"four"])


def set_defaults(path: Path, **values: Any) -> None:
    """Gives inputs of serving_default default values, as tf.saved_model.save does for arguments of a tf.function."""
    file = path / "saved_model.pb"
    proto = SavedModel.FromString(file.read_bytes())
    signature = proto.meta_graphs[0].signature_def["serving_default"]
    for name, value in values.items():
        signature.defaults[name].CopyFrom(tf.make_tensor_proto(value))
    file.write_bytes(proto.SerializeToString())


def make_every_dtype(path: Path) -> None:
    """One input and one output of every type in DTYPES, each output equal to its input `<type>` as `<type>_out`."""
    specs = [tf.TensorSpec([None], getattr(tf, name), name=name) for name in DTYPES]
    _save(path, specs, lambda *values: {f"{n}_out": tf.identity(v) for n, v in zip(DTYPES, values, strict=True)})


def make_several_inputs(path: Path) -> None:
    """a, b [batch, 2] -> sum, product [batch, 2]."""
    specs = [tf.TensorSpec([None, 2], tf.float32, name=name) for name in "ab"]
    _save(path, specs, lambda a, b: {"sum": a + b, "product": a * b})


def make_scalar(path: Path) -> None:
    """a [] and a greeting [] -> double [] and greeting []: nothing to batch."""
    specs = [tf.TensorSpec([], tf.float32, name="a"), tf.TensorSpec([], tf.string, name="name")]
    _save(path, specs, lambda a, name: {"double": 2.0 * a, "greeting": tf.strings.join(["hello ", name])})


def make_scalars(path: Path) -> None:
    """a [] and a name [] -> double [] and same [], the name: nothing to batch, and no operation on strings."""
    specs = [tf.TensorSpec([], tf.float32, name="a"), tf.TensorSpec([], tf.string, name="name")]
    _save(path, specs, lambda a, name: {"double": 2.0 * a, "same": tf.identity(name)})


def make_no_inputs(path: Path) -> None:
    """Nothing -> seven []."""
    _save(path, [], lambda: {"seven": tf.constant(7)})


def make_unknown_inner(path: Path) -> None:
    """matrix [batch, ?, ?] -> total [batch], doubled [batch, ?, ?]."""
    specs = [tf.TensorSpec([None, None, None], tf.float32, name="matrix")]
    _save(path, specs, lambda matrix: {"total": tf.reduce_sum(matrix, axis=[1, 2]), "doubled": 2.0 * matrix})


def make_unknown_rank(path: Path) -> None:
    """x of any shape -> y = x + 1 of that shape."""
    _save(path, [tf.TensorSpec(None, tf.float32, name="x")], lambda x: {"y": x + 1.0})


def make_poison(path: Path) -> None:
    """Doubles x [batch], but fails the whole call on any negative value."""

    def double(x: Any) -> Any:
        with tf.control_dependencies([tf.debugging.assert_non_negative(x, "x must not be negative")]):
            return {"y": 2.0 * x}

    _save(path, [tf.TensorSpec([None], tf.float32, name="x")], double)


def make_slow(path: Path) -> None:
    """steps [batch] int32 -> done [batch]: computes for as many steps as the greatest of the batch says."""

    def work(steps: Any) -> Any:
        def step(count: Any, value: Any) -> Any:
            return count + 1, tf.linalg.matmul(value, value) / 32.0

        most = tf.reduce_max(tf.concat([steps, [0]], axis=0))
        _, value = tf.while_loop(lambda count, _: count < most, step, (0, tf.ones([32, 32])), parallel_iterations=1)
        return {"done": tf.cast(steps, tf.float32) * value[0, 0]}

    _save(path, [tf.TensorSpec([None], tf.int32, name="steps")], work)


def make_several_signatures(path: Path) -> None:
    """serving_default: x -> y = x + 1; double: x -> y = 2x; join: words [batch] -> text []."""
    module = tf.Module()
    x = tf.TensorSpec([None], tf.float32, name="x")
    words = tf.TensorSpec([None], tf.string, name="words")
    module.plus_one = tf.function(lambda x: {"y": x + 1.0}, input_signature=[x])
    module.double = tf.function(lambda x: {"y": 2.0 * x}, input_signature=[x])
    module.join = tf.function(lambda words: {"text": tf.strings.reduce_join(words)}, input_signature=[words])
    signatures = {"serving_default": module.plus_one, "double": module.double, "join": module.join}
    tf.saved_model.save(module, str(path), signatures=signatures)


def make_signatures_of_numbers(path: Path) -> None:
    """serving_default: x -> y = x + 1; double: x -> y = 2x; total: numbers [batch] -> sum []."""
    module = tf.Module()
    x = tf.TensorSpec([None], tf.float32, name="x")
    numbers = tf.TensorSpec([None], tf.float32, name="numbers")
    module.plus_one = tf.function(lambda x: {"y": x + 1.0}, input_signature=[x])
    module.double = tf.function(lambda x: {"y": 2.0 * x}, input_signature=[x])
    module.total = tf.function(lambda numbers: {"sum": tf.reduce_sum(numbers)}, input_signature=[numbers])
    signatures = {"serving_default": module.plus_one, "double": module.double, "total": module.total}
    tf.saved_model.save(module, str(path), signatures=signatures)


def make_unwanted_output(path: Path) -> None:
    """text [batch] -> length, and number, which fails where the text is not one."""
    specs = [tf.TensorSpec([None], tf.string, name="text")]
    _save(path, specs, lambda text: {"length": tf.strings.length(text), "number": tf.strings.to_number(text)})


def make_many_outputs(path: Path) -> None:
    """x [batch] -> y0 ... y5, where yN = x + N: 63 sets of outputs to ask for."""
    specs = [tf.TensorSpec([None], tf.float32, name="x")]
    _save(path, specs, lambda x: {f"y{n}": x + float(n) for n in range(6)})


def make_counter(path: Path) -> None:
    """x [batch] -> y = x, and calls [batch]: how often the model was called, this call included."""
    module = tf.Module()
    module.calls = tf.Variable(0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def count(x: Any) -> Any:
        return {"y": tf.identity(x), "calls": tf.fill(tf.shape(x), module.calls.assign_add(1))}

    module.count = count
    tf.saved_model.save(module, str(path), signatures=count)


def make_image_net(path: Path) -> None:
    """image [batch, 8, 8] -> probabilities [batch, 4] through a convolution and a dense layer."""
    module = tf.Module()
    random = tf.random.Generator.from_seed(7)
    module.kernel = tf.Variable(random.normal([3, 3, 1, 8]))
    module.dense = tf.Variable(random.normal([8 * 8 * 8, 4]) / 8.0)

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8], tf.float32, name="image")])
    def classify(image: Any) -> Any:
        features = tf.nn.relu(tf.nn.conv2d(image[..., tf.newaxis], module.kernel, 1, "SAME"))
        return {"probabilities": tf.nn.softmax(tf.reshape(features, [-1, 8 * 8 * 8]) @ module.dense)}

    module.classify = classify
    tf.saved_model.save(module, str(path), signatures=classify)


def make_attention(path: Path) -> None:
    """tokens [batch, length] of int32 below 20, 0 being padding, at most 40 -> each [batch, length, 4] by attention
    and pooled [batch, 4]; `unmasked` is the same blind to padding.
    """
    module, random = tf.Module(), tf.random.Generator.from_seed(1)
    module.embedding, module.positions = (tf.Variable(random.normal([size, 4])) for size in (20, 40))

    def attend(tokens: Any, real: Any) -> Any:
        length = tf.shape(tokens)[1]
        x = tf.gather(module.embedding, tokens) + module.positions[:length]
        scores = tf.matmul(x, x, transpose_b=True) + (real[:, tf.newaxis, :] - 1.0) * 1e9
        each = tf.matmul(tf.nn.softmax(scores), x)
        pooled = tf.reduce_sum(each * real[..., tf.newaxis], 1) / tf.reduce_sum(real, 1, keepdims=True)
        return {"each": each, "pooled": pooled}

    spec = [tf.TensorSpec([None, None], tf.int32, name="tokens")]
    module.masked = tf.function(lambda tokens: attend(tokens, tf.cast(tokens > 0, tf.float32)), spec)
    module.unmasked = tf.function(lambda tokens: attend(tokens, tf.ones(tf.shape(tokens))), spec)
    signatures = {"serving_default": module.masked, "unmasked": module.unmasked}
    tf.saved_model.save(module, str(path), signatures=signatures)


def make_masked(path: Path) -> None:
    """tokens [batch, length] of int32 below 20, mask [batch, length] of int64 and lengths [batch] of int32 ->
    mean [batch, 4] of the tokens that the mask keeps, and last [batch, 4], the one that the length says.
    """
    module = tf.Module()
    module.embedding = tf.Variable(tf.random.Generator.from_seed(3).normal([20, 4]))

    def call(tokens: Any, mask: Any, lengths: Any) -> Any:
        x, real = tf.gather(module.embedding, tokens), tf.cast(mask, tf.float32)
        mean = tf.reduce_sum(x * real[..., tf.newaxis], 1) / tf.reduce_sum(real, 1, keepdims=True)
        return {"mean": mean, "last": tf.gather(x, lengths - 1, batch_dims=1)}

    specs = [
        tf.TensorSpec([None, None], tf.int32, name="tokens"),
        tf.TensorSpec([None, None], tf.int64, name="mask"),
        tf.TensorSpec([None], tf.int32, name="lengths"),
    ]
    module.call = tf.function(call, input_signature=specs)
    tf.saved_model.save(module, str(path), signatures=module.call)


def make_strided(path: Path) -> None:
    """sound [batch, length, 1] -> valid [batch, (length - 5) // 2 + 1, 3] by a convolution without padding, twice
    [batch, 2 * length, 1], and by signature `same` a convolution [batch, ceil(length / 2), 3] that pads.
    """
    module = tf.Module()
    module.kernel = tf.Variable(tf.random.Generator.from_seed(5).normal([5, 1, 3]))
    spec = [tf.TensorSpec([None, None, 1], tf.float32, name="sound")]

    def valid(sound: Any) -> Any:
        return {"valid": tf.nn.conv1d(sound, module.kernel, 2, "VALID"), "twice": tf.repeat(sound, 2, axis=1)}

    module.valid = tf.function(valid, spec)
    module.same = tf.function(lambda sound: {"same": tf.nn.conv1d(sound, module.kernel, 2, "SAME")}, spec)
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.valid, "same": module.same})


def make_ragged_output(path: Path) -> None:
    """x [batch] of int32 -> counts, a RaggedTensor [batch, ragged] of the numbers below each, table [batch, 2, ragged]
    of the same twice, and double [batch].
    """

    def call(x: Any) -> Any:
        counts = tf.ragged.range(x)
        table = tf.ragged.stack([counts, counts], 1)
        return {"counts": counts, "table": table, "double": 2 * x}

    _save(path, [tf.TensorSpec([None], tf.int32, name="x")], call)


def make_ragged(path: Path) -> None:
    """words, a RaggedTensor [batch, ragged] of int32, tables [batch, ragged, ragged] and scale [batch] ->
    sums [batch] of the words times scale, and cells [batch], the sums of the tables.
    """

    def call(words: Any, scale: Any, tables: Any) -> Any:
        sums = tf.reduce_sum(tf.cast(words, tf.float32), 1) * scale
        return {"sums": sums, "cells": tf.reduce_sum(tables, [1, 2])}

    words, tables = tf.RaggedTensorSpec([None, None], tf.int32), tf.RaggedTensorSpec([None, None, None], tf.float32)
    _save(path, [words, tf.TensorSpec([None], tf.float32, name="scale"), tables], call)


def make_ragged_echo(path: Path) -> None:
    """words, a RaggedTensor [batch, ragged] of string -> longer, the same with its first word behind, and no other."""
    words = tf.RaggedTensorSpec([None, None], tf.string)
    _save(path, [words], lambda words: {"longer": tf.concat([words, words[:, :1]], 1)})


def make_twins(path: Path) -> None:
    """x [batch] and x_1 [batch] of int64, which look like a RaggedTensor and are none -> sum [batch]."""
    specs = [tf.TensorSpec([None], tf.float32, name="x"), tf.TensorSpec([None], tf.int64, name="x_1")]
    _save(path, specs, lambda x, x_1: {"sum": x + tf.cast(x_1, tf.float32)})


def make_image_decoder(path: Path) -> None:
    """png [batch] of encoded images -> size [batch]: rejects whatever is no image, the empty string included."""

    def sizes(png: Any) -> Any:
        return {"size": tf.map_fn(lambda one: tf.size(tf.io.decode_png(one)), png, fn_output_signature=tf.int32)}

    _save(path, [tf.TensorSpec([None], tf.string, name="png")], sizes)


def make_rendezvous(path: Path) -> None:
    """wait: x [batch] -> y = x plus what a call of give hands over, which it waits for; give: x -> y = x."""
    module = tf.Module()
    x = tf.TensorSpec([None], tf.float32, name="x")

    def queue() -> Any:
        return tf.raw_ops.FIFOQueueV2(component_types=[tf.float32], shapes=[[]], shared_name=str(path))

    def wait(x: Any) -> Any:
        (given,) = tf.raw_ops.QueueDequeueV2(handle=queue(), component_types=[tf.float32])
        return {"y": x + given}

    def give(x: Any) -> Any:
        with tf.control_dependencies([tf.raw_ops.QueueEnqueueV2(handle=queue(), components=[x[0]])]):
            return {"y": tf.identity(x)}

    module.wait, module.give = tf.function(wait, [x]), tf.function(give, [x])
    tf.saved_model.save(module, str(path), signatures={"wait": module.wait, "give": module.give})


def make_on_a_gpu(path: Path) -> None:
    """x [batch] -> y = 2x, which its author wants on a GPU."""

    def double(x: Any) -> Any:
        with tf.device("/GPU:0"):
            return {"y": 2.0 * x}

    _save(path, [tf.TensorSpec([None], tf.float32, name="x")], double)


def make_placed(path: Path, devices: Sequence[str] = ("CPU:0", "CPU:1")) -> None:
    """x [batch, 6] -> y = relu(x @ w) @ v, split over devices that hold columns of w and rows of v; and each part."""
    width, module = 40, tf.Module()
    random = np.random.default_rng(1)
    module.w, module.v = [], []
    for device in devices:
        with tf.device(device):
            module.w.append(tf.Variable(random.normal(0, 1, [6, width]).astype(np.float32)))
            module.v.append(tf.Variable(random.normal(0, 1, [width, 3]).astype(np.float32)))

    @tf.function(input_signature=[tf.TensorSpec([None, 6], tf.float32, name="x")])
    def call(x: Any) -> Any:
        parts = []
        for device, w, v in zip(devices, module.w, module.v, strict=True):
            with tf.device(device):
                parts.append(tf.nn.relu(x @ w) @ v)
        return {"y": tf.add_n(parts), **{f"part_{number}": part for number, part in enumerate(parts)}}

    policy = tf.saved_model.experimental.VariablePolicy.SAVE_VARIABLE_DEVICES
    options = tf.saved_model.SaveOptions(experimental_variable_policy=policy)
    tf.saved_model.save(module, str(path), signatures=call, options=options)


def make_tf1(path: Path) -> None:
    """A TensorFlow 1 model: images/x -> scaled, guarded (fails unless x < 10); classify; regress; and a
    signature whose input is a resource.
    """
    tf1 = tf.compat.v1
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [None, 1], name="x")
        scale = tf1.get_variable("scale", initializer=3.0, use_resource=True)
        scaled = tf.multiply(x, scale, name="scaled")
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(x < 10.0), ["x must be below 10", x])]):
            guarded = tf.identity(x, name="guarded")
        handle = tf1.placeholder(tf.resource, [], name="handle")
        filled = tf.raw_ops.VarIsInitializedOp(resource=handle)
        session.run(tf1.global_variables_initializer())
        predict = _tf1_signature({"images/x": x}, {"scaled": scaled, "guarded": guarded}, "predict")
        signatures = {
            "serving_default": predict,
            "classify": _tf1_signature({"inputs": x}, {"scores": scaled}, "classify"),
            "regress": _tf1_signature({"inputs": x}, {"outputs": scaled}, "regress"),
            "by_handle": _tf1_signature({"handle": handle}, {"filled": filled}, "predict"),
        }
        builder = tf1.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=signatures)
        builder.save()


def make_sparse_tf1(path: Path) -> None:
    """A TensorFlow 1 model with a signature that takes a sparse tensor, and one that does not."""
    tf1 = tf.compat.v1
    with tf.Graph().as_default(), tf1.Session() as session:
        sparse = tf1.sparse_placeholder(tf.float32, [None, 4], name="sparse")
        x = tf1.placeholder(tf.float32, [None], name="x")
        signatures = {
            "serving_default": _tf1_signature({"x": x}, {"y": x + 1.0}, "predict"),
            "sparse": _tf1_signature({"sparse": sparse}, {"sum": tf1.sparse_reduce_sum(sparse, 1)}, "predict"),
        }
        builder = tf1.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=signatures)
        builder.save()


def make_training_graph(path: Path) -> None:
    """A TensorFlow 1 model with a graph for training only."""
    tf1 = tf.compat.v1
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [None], name="x")
        builder = tf1.saved_model.Builder(str(path))
        signature = _tf1_signature({"x": x}, {"y": x + 1.0}, "predict")
        builder.add_meta_graph_and_variables(session, ["train"], signature_def_map={"serving_default": signature})
        builder.save()


def _save(path: Path, specs: list[Any], function: Callable[..., Any]) -> None:
    module = tf.Module()
    module.function = tf.function(function, input_signature=specs)
    tf.saved_model.save(module, str(path), signatures=module.function)


def _tf1_signature(inputs: dict[str, Any], outputs: dict[str, Any], method: str) -> Any:
    def describe(tensor: Any) -> Any:
        if hasattr(tensor, "dense_shape"):
            names = TensorInfo.CooSparse(
                values_tensor_name=tensor.values.name,
                indices_tensor_name=tensor.indices.name,
                dense_shape_tensor_name=tensor.dense_shape.name,
            )
            shape = tensor.get_shape().as_proto()
            return TensorInfo(coo_sparse=names, dtype=tensor.dtype.as_datatype_enum, tensor_shape=shape)
        return TensorInfo(name=tensor.name, dtype=tensor.dtype.as_datatype_enum, tensor_shape=tensor.shape.as_proto())

    return SignatureDef(
        inputs={name: describe(tensor) for name, tensor in inputs.items()},
        outputs={name: describe(tensor) for name, tensor in outputs.items()},
        method_name=f"tensorflow/serving/{method}",
    )


def _set_method(path: Path, signature: str, method: str) -> None:
    """tf.saved_model.save writes predict's method name everywhere; the classic ones need a second step."""
    file = path / "saved_model.pb"
    proto = SavedModel.FromString(file.read_bytes())
    proto.meta_graphs[0].signature_def[signature].method_name = method
    file.write_bytes(proto.SerializeToString())


def make_sparse(path: Path) -> None:
    """ids, a SparseTensor [batch, columns] of int64, and scale [batch] -> mean [batch, 2]: of rows of a table, scaled.

    It fills empty rows: TensorFlow would end the process if a request claimed 2^33 of them.
    """
    table = tf.constant([[float(row), 1.0] for row in range(8)])

    def call(ids: Any, scale: Any) -> Any:
        return {"mean": tf.nn.safe_embedding_lookup_sparse(table, ids) * scale[:, None]}

    _save(path, [tf.SparseTensorSpec([None, None], tf.int64), tf.TensorSpec([None], tf.float32, name="scale")], call)
