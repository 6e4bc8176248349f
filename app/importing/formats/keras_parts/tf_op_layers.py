"""Layers of Keras 2 that call TensorFlow by name (TFOpLambda, ClassMethod, TensorFlowOpLayer): what they may call.

Such a layer may name any public function of TensorFlow, also one that reads files, loads libraries or calls Python.
So only those that compute are allowed: these name spaces, and these functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from app.runtimes.tensorflow.graph_nodes import names
from app.runtimes.tensorflow.saved_model.forbidden_operations import why_forbidden

_NAME_SPACES = names("""
    __operators__ audio bitwise dtypes experimental.numpy image linalg math nn quantization ragged random
    random.experimental signal sparse sets strings
""")

#: Functions of TensorFlow's root, and of name spaces whose rest is not allowed.
_FUNCTIONS = names("""
    abs acos acosh add add_n argmax argmin argsort as_string asin asinh atan atan2 atanh batch_to_space bitcast
    boolean_mask broadcast_dynamic_shape broadcast_static_shape broadcast_to cast clip_by_global_norm clip_by_norm
    clip_by_value complex concat constant convert_to_tensor cos cosh cumsum divide dynamic_partition dynamic_stitch
    edit_distance eig eigvals einsum ensure_shape equal exp expand_dims extract_volume_patches eye fftnd fill
    fingerprint floor gather gather_nd greater greater_equal guarantee_const histogram_fixed_width
    histogram_fixed_width_bins identity identity_n ifftnd irfftnd less less_equal linspace logical_and logical_not
    logical_or matmul maximum meshgrid minimum multiply negative norm not_equal one_hot ones ones_like pad pow range
    rank realdiv reduce_all reduce_any reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod reduce_sum repeat
    reshape reverse reverse_sequence rfftnd roll round saturate_cast scalar_mul scatter_nd searchsorted sequence_mask
    shape shape_n sigmoid sign sin sinh size slice sort space_to_batch space_to_batch_nd split sqrt square squeeze
    stack stop_gradient strided_slice subtract tan tanh tensor_scatter_nd_add tensor_scatter_nd_max
    tensor_scatter_nd_min tensor_scatter_nd_sub tensor_scatter_nd_update tensordot tile transpose truediv truncatediv
    truncatemod tuple unique unique_with_counts unravel_index unstack where zeros zeros_like
    io.decode_and_crop_jpeg io.decode_base64 io.decode_csv io.decode_gif io.decode_image io.decode_jpeg
    io.decode_json_example io.decode_png io.decode_raw io.encode_base64 io.encode_jpeg io.encode_png io.parse_example
    io.parse_single_example io.parse_tensor
""")

#: What older names of functions begin with.
_OLDER = "compat.v1."

#: Attributes of ragged and sparse tensors.
_ATTRIBUTES = names("""
    values flat_values row_splits nested_row_splits row_lengths nested_row_lengths value_rowids nested_value_rowids
    nrows row_starts row_limits to_tensor to_sparse with_values with_flat_values with_row_splits_dtype bounding_shape
    merge_dims get_shape shape indices dense_shape dtype ragged_rank uniform_row_length rank
""")
_CLASSES = frozenset({"RaggedTensor", "SparseTensor", "sparse.SparseTensor", "Tensor"})


def why_refused(layer: str, config: Mapping[str, Any]) -> str:
    """Why a layer of this class may not run, as a verb with its object; empty if it may, or is of another class."""
    if layer in {"TFOpLambda", "SlicingOpLambda"}:
        return "" if _is_allowed(function := config.get("function")) else f"calls tf.{_text(function)}"
    if layer == "ClassMethod":
        symbol, method = config.get("cls_symbol"), _text(config.get("method_name"))
        allowed = symbol in _CLASSES and method.startswith("from_")
        return "" if allowed else f"calls tf.{_text(symbol)}.{method}"
    if layer in {"InstanceMethod", "InstanceProperty"}:
        attribute = config.get("attr_name")
        return "" if attribute in _ATTRIBUTES else f"uses the attribute {_text(attribute)} of a tensor"
    return _why_node_refused(config) if layer == "TensorFlowOpLayer" else ""


def _is_allowed(function: object) -> bool:
    name = function.removeprefix(_OLDER) if isinstance(function, str) else ""
    return name in _FUNCTIONS or name.rpartition(".")[0] in _NAME_SPACES


def _why_node_refused(config: Mapping[str, Any]) -> str:
    given = config.get("node_def")
    try:
        if isinstance(given, Mapping):
            node = json_format.ParseDict(dict(given), tf.compat.v1.NodeDef())
        else:
            node = tf.compat.v1.NodeDef.FromString(_text(given).encode())
    except (json_format.ParseError, DecodeError):
        return "holds an operation that cannot be read"
    return f"holds the operation {node.op[:80]}, which {reason}" if (reason := why_forbidden(node)) else ""


def _text(value: object) -> str:
    return str(value)[:80]
