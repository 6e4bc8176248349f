"""SavedModels as Keras on JAX exports them, made from StableHLO text by TensorFlow alone."""

from pathlib import Path

import tensorflow as tf
from tensorflow.compiler.mlir.stablehlo import stablehlo_extension
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

#: A value plus its state, which is given back as it was, through a call.
KEPT = """
module @kept attributes {jax.uses_shape_polymorphism = true} {
  func.func public @main(%arg0: tensor<2xf32>, %arg1: tensor<?x2xf32>) -> (tensor<?x2xf32>, tensor<2xf32>) {
    %0:2 = call @inner(%arg1, %arg0) : (tensor<?x2xf32>, tensor<2xf32>) -> (tensor<?x2xf32>, tensor<2xf32>)
    return %0#0, %0#1 : tensor<?x2xf32>, tensor<2xf32>
  }
  func.func private @inner(%arg0: tensor<?x2xf32>, %arg1: tensor<2xf32>) -> (tensor<?x2xf32>, tensor<2xf32>) {
    %0 = stablehlo.add %arg0, %arg0 : tensor<?x2xf32>
    return %0, %arg1 : tensor<?x2xf32>, tensor<2xf32>
  }
}
"""

#: The same, but the state that it gives back is another one.
COUNTED = KEPT.replace("return %0, %arg1", "%1 = stablehlo.add %arg1, %arg1 : tensor<2xf32>\n    return %0, %1")


def bytecode(text: str) -> bytes:
    version = stablehlo_extension.get_minimum_version()
    return bytes(stablehlo_extension.serialize_portable_artifact_str(text, version))


def make_module(text: str, *, to_another: bool = False) -> tf.Module:
    """A module whose function `call` assigns the state that the StableHLO gives back.

    to_another: it is assigned to another variable than the one that was read.
    """
    module = tf.Module()
    module.state, module.other = tf.Variable([1.0, 2.0]), tf.Variable([3.0, 4.0])
    code = bytecode(text)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def call(x: tf.Tensor) -> dict[str, tf.Tensor]:
        y, state = gen_xla_ops.xla_call_module(
            args=[module.state.read_value(), x], version=9, module=code, Sout=[[None, 2], [2]],
            Tout=[tf.float32, tf.float32], platforms=["CPU"],
        )  # fmt: skip
        (module.other if to_another else module.state).assign(state)
        return {"y": y}

    module.call = call
    return module


def save(folder: Path, module: tf.Module, **more: tf.Module) -> Path:
    """A version with the signature serving_default, and one for each of `more`."""
    module.more = list(more.values())
    signatures = {"serving_default": module, **more}
    tf.saved_model.save(
        module, str(folder), {name: each.call.get_concrete_function() for name, each in signatures.items()}
    )
    return folder
