"""Uses of sums, products of matrices, convolutions, images and random numbers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from app.runtimes.tensorflow.accepted_values.encoded_media import encoded_image
from tests.runtimes.tensorflow.row_proof.drawing import ROWS_AXIS, Draw, Operand, Several, Shape, Use
from tests.runtimes.tensorflow.row_proof.uses import recipe
from tests.runtimes.tensorflow.row_proof.uses_of_shapes import size_of


@recipe("Sum Mean Max Min Prod EuclideanNorm All Any ReduceJoin")
def reduce(d: Draw, operation: str) -> Use:
    dtype = {"All": tf.bool, "Any": tf.bool, "ReduceJoin": tf.string}.get(operation, d.one(tf.float32, tf.int32))
    shape = d.shape(1, 4)
    value = d.tensor(shape, dtype)
    axes = d.axes(shape)
    where = d.whole(axes if d.chance(0.7) else d.axis(shape), strange=0.02)
    if d.chance(0.1) and dtype == tf.int32:
        value, where = d.strange(), d.whole(d.one(0, [], [0]))
    if dtype in (tf.bool, tf.string):
        return d.call(
            operation,
            **{"inputs" if dtype == tf.string else "input": value, _AXES[operation]: where},
            keep_dims=d.chance(0.4),
        )
    return d.call(operation, input=value, axis=where, keep_dims=d.chance(0.4))


_AXES = {"All": "axis", "Any": "axis", "ReduceJoin": "reduction_indices"}


@recipe("ArgMax ArgMin")
def arg_max(d: Draw, operation: str) -> Use:
    shape = d.shape(1, 4)
    return d.call(operation, input=d.tensor(shape), dimension=d.whole(d.axis(shape), strange=0.02))


@recipe("Cumsum Cumprod CumulativeLogsumexp")
def cumulate(d: Draw, operation: str) -> Use:
    shape = d.shape(1, 4)
    axis = d.whole(d.axis(shape), strange=0.02)
    return d.call(operation, x=d.tensor(shape), axis=axis, exclusive=d.chance(0.5), reverse=d.chance(0.5))


@recipe("Softmax LogSoftmax")
def softmax(d: Draw, operation: str) -> Use:
    return d.call(operation, logits=d.any())


@recipe("L2Loss")
def loss(d: Draw, operation: str) -> Use:
    return d.call(operation, t=d.any())


@recipe("Bincount DenseBincount HistogramFixedWidth RandomShuffle")
def bincount(d: Draw, operation: str) -> Use:
    shape = d.shape(1, 2)
    values = d.tensor(shape, tf.int32, below=4)
    if operation == "RandomShuffle":
        return d.call(operation, value=values, seed=1, seed2=2)
    if operation == "HistogramFixedWidth":
        return d.call(operation, values=values, value_range=d.whole([0, 4], strange=0), nbins=d.whole(3))
    weights = d.one(d.tensor(shape), Operand(lambda x, u: tf.zeros([0])), d.tensor(d.beside(shape)))
    if operation == "Bincount":
        return d.call(operation, arr=values, size=d.whole(4), weights=weights)
    return d.call(operation, input=values, size=d.whole(d.one(2, 4)), weights=weights, binary_output=d.chance(0.4))


# --- matrices ---


@recipe("MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3")
def multiply(d: Draw, operation: str) -> Use:
    flags = ("transpose_a", "transpose_b") if operation == "MatMul" else ("adj_x", "adj_y")
    swap = [d.chance(0.4), d.chance(0.4)]
    m, k, n = d.sizes(3)
    batch: Shape = [] if operation == "MatMul" else d.shape(0, 2)
    sides: list[Shape] = [[m, k], [k, n]]
    if d.chance(0.5 if batch else 0.9):  # rows in a matrix
        side, place = d.one(0, 1), d.one(0, 1)
        sides[side][place] = ROWS_AXIS
        batch = [size_of(each) for each in batch]
        if d.chance(0.3):
            sides[1 - side][d.one(0, 1)] = ROWS_AXIS
    batches = [batch, batch if operation == "BatchMatMul" or d.chance(0.5) else d.beside(batch)]
    shapes = []
    for before, side, swapped in zip(batches, sides, swap, strict=True):
        shapes.append(_one_rows([*before, *(side[::-1] if swapped else side)]))
    names = ("a", "b") if operation == "MatMul" else ("x", "y")
    extra = {"Tout": tf.float32} if operation == "BatchMatMulV3" else {}
    operands: dict[str, Any] = dict(zip(names, map(d.tensor, shapes), strict=True))
    return d.call(operation, **operands, **dict(zip(flags, swap, strict=True)), **extra)


def _one_rows(shape: Shape) -> Shape:
    """The shape with one axis of rows at most."""
    first = next((n for n, each in enumerate(shape) if isinstance(each, Several)), -1)
    return [4 if isinstance(each, Several) and n != first else each for n, each in enumerate(shape)]


@recipe("Einsum")
def einsum(d: Draw, operation: str) -> Use:
    labels = "abcn"
    sizes: dict[str, int | Several] = {"a": d.one(1, 2), "b": 3, "c": 4, "n": ROWS_AXIS}
    ellipsis: Shape = d.shape(1, 2, rows=0.2) if d.chance(0.3) else []
    terms, shapes = [], []
    for _ in range(d.one(1, 2, 2)):
        chosen = [str(each) for each in d.random.choice(list(labels), d.one(1, 2, 3), replace=d.chance(0.3))]
        if d.chance(0.5) and "n" not in chosen:
            chosen.insert(0, "n")
        shape: Shape = [sizes[each] for each in chosen]
        term = "".join(chosen)
        if ellipsis and d.chance(0.7):
            at = int(d.random.integers(len(chosen) + 1))
            dots = d.beside(ellipsis) if d.chance(0.5) else ellipsis
            term = term[:at] + "..." + term[at:]
            shape = [*shape[:at], *dots, *shape[at:]]
        terms.append(term)
        shapes.append(_one_rows(shape))
    known = sorted(set("".join(terms).replace(".", "")))
    out = [each for each in known if d.chance(0.7) or (each == "n" and d.chance(0.8))]
    out = [str(each) for each in d.random.permutation(out)] if out else []
    if out and d.chance(0.1):
        out.append(out[0])
    result = "".join(out)
    if any("." in each for each in terms):
        at = int(d.random.integers(len(result) + 1))
        result = result[:at] + "..." + result[at:]
    return d.call(operation, inputs=[d.tensor(each) for each in shapes], equation=",".join(terms) + "->" + result)


@recipe("MatrixBandPart")
def band(d: Draw, operation: str) -> Use:
    value = d.any(low=2)
    return d.call(operation, input=value, num_lower=d.whole(d.one(0, 1, -1)), num_upper=d.whole(d.one(0, 1, -1)))


@recipe("Cholesky MatrixInverse")
def of_matrices(d: Draw, operation: str) -> Use:
    """A symmetric matrix whose diagonal is large."""
    shape = d.shape(1, 3)
    value = d.tensor([*shape, 3] if d.chance(0.8) else [3, *shape], mode="unit")

    def use(x: Any, u: Any) -> list[Any]:
        made = value.make(x, u)
        matrix = made[..., :, None] * made[..., None, :] + 4.0 * tf.eye(tf.shape(made)[-1])
        return [getattr(tf.raw_ops, operation)(input=matrix)]

    return use


@recipe("FFT IFFT FFT2D IFFT2D FFT3D IFFT3D")
def transform(d: Draw, operation: str) -> Use:
    return d.call(operation, input=d.any(tf.complex64, int(operation[-2]) if operation.endswith("D") else 1))


@recipe("RFFT IRFFT")
def transform_real(d: Draw, operation: str) -> Use:
    value = d.any(tf.float32 if operation == "RFFT" else tf.complex64)
    return d.call(operation, input=value, fft_length=d.whole([d.one(1, 2, 3, 4, 6)]))


@recipe("Cross")
def cross(d: Draw, operation: str) -> Use:
    shape: Shape = [*d.shape(0, 3), 3] if d.chance(0.8) else d.shape(1, 3)
    return d.call(operation, a=d.tensor(shape), b=d.tensor(shape if d.chance(0.7) else d.beside(shape)))


@recipe("MatrixDiagV3 MatrixDiagV2 MatrixDiagPartV3 MatrixDiagPartV2")
def diagonals(d: Draw, operation: str) -> Use:
    k = d.one(0, 0, 0, [0], 1, [0, 1])
    if "Part" in operation:
        return d.call(operation, input=d.any(low=2), k=d.whole(k), padding_value=d.tensor([]))
    size = d.whole(d.one(-1, -1, 4, 5))
    return d.call(
        operation,
        diagonal=d.any(),
        k=d.whole(k),
        num_rows=size,
        num_cols=d.whole(d.one(-1, 4)),
        padding_value=d.tensor([]),
    )


@recipe("LowerBound UpperBound")
def search(d: Draw, operation: str) -> Use:
    shape = d.shape(2, 2)
    ordered = d.tensor(shape)
    values = d.tensor([shape[0], d.one(1, 2, 3)] if d.chance(0.8) else d.shape(2, 2))
    call = getattr(tf.raw_ops, operation)
    return lambda x, u: [call(sorted_inputs=tf.sort(ordered.make(x, u)), values=values.make(x, u))]


@recipe("InTopK InTopKV2")
def in_top(d: Draw, operation: str) -> Use:
    shape = d.shape(2, 2)
    k = d.one(1, 2, 3)
    targets = d.tensor(shape[:1] if d.chance(0.8) else d.shape(1, 1), tf.int32, below=3)
    return d.call(operation, predictions=d.tensor(shape), targets=targets, k=k if operation == "InTopK" else d.whole(k))


@recipe("SparseSoftmaxCrossEntropyWithLogits")
def cross_entropy(d: Draw, operation: str) -> Use:
    shape = d.shape(2, 2)
    labels = d.tensor(shape[:1] if d.chance(0.9) else d.shape(1, 1), tf.int32, below=size_of(shape[1]))
    return d.call(operation, features=d.tensor(shape), labels=labels)


# --- images ---


def _image(d: Draw, spatial: int = 2, channels: int = 2, layout: str = "") -> Shape:
    space: Shape = [d.one(3, 4, 5) for _ in range(spatial)]
    batch: int | Several = d.rows_axis() if d.chance(0.85) else d.one(1, 2)
    found: Shape = [batch, channels, *space] if layout.startswith("NC") else [batch, *space, channels]
    if not isinstance(batch, Several) and d.chance(0.7):
        found[int(d.random.integers(1, len(found)))] = ROWS_AXIS
    return found


def _window(d: Draw, rank: int, *, batch: float = 0.1, layout: str = "", most: int = 2) -> list[int]:
    found = [d.one(*range(1, most + 1)) for _ in range(rank)]
    if not d.chance(batch):
        found[0] = 1
    if not d.chance(0.1):
        found[1 if layout.startswith("NC") else -1] = 1
    return found


@recipe("Conv2D Conv3D DepthwiseConv2dNative")
def convolve(d: Draw, operation: str) -> Use:
    spatial = 3 if operation == "Conv3D" else 2
    layout = d.one("NHWC", "NHWC", "NCHW") if spatial == 2 else "NDHWC"
    image = _image(d, spatial, layout=layout)
    kernel = [*[d.one(1, 2, 3) for _ in range(spatial)], d.one(2, 2, 1), d.one(1, 2, 3)]
    extra: dict[str, Any] = {
        "strides": _window(d, spatial + 2, layout=layout, batch=0.05),
        "padding": d.one("SAME", "VALID"),
    }
    if spatial == 2 and operation == "Conv2D" and d.chance(0.2):
        extra |= {
            "padding": "EXPLICIT",
            "explicit_paddings": [0, 0, 1, 0, 0, 1, 0, 0] if layout == "NHWC" else [0, 0, 0, 0, 1, 0, 2, 1],
        }
    if d.chance(0.3):
        extra |= {"dilations": _window(d, spatial + 2, layout=layout, batch=0.05), "strides": [1] * (spatial + 2)}
    weights = d.tensor(kernel if d.chance(0.95) else [*kernel[:-1], ROWS_AXIS])
    name = "filter"
    return d.call(operation, input=d.tensor(image), **{name: weights}, data_format=layout, **extra)


@recipe("MaxPool AvgPool MaxPool3D AvgPool3D MaxPoolWithArgmax")
def pool(d: Draw, operation: str) -> Use:
    spatial = 3 if "3D" in operation else 2
    layout = "NDHWC" if spatial == 3 else d.one("NHWC", "NHWC", "NCHW")
    extra: dict[str, Any] = {"data_format": layout}
    if operation == "MaxPoolWithArgmax":
        layout = "NHWC"
        extra = {"include_batch_in_index": d.chance(0.5)}
    name = "value" if operation == "AvgPool" else "input"
    windows = [_window(d, spatial + 2, layout=layout) for _ in range(2)]
    value = d.tensor(_image(d, spatial, layout=layout))
    return d.call(
        operation, **{name: value}, ksize=windows[0], strides=windows[1], padding=d.one("SAME", "VALID"), **extra
    )


@recipe("Conv2DBackpropInput Conv3DBackpropInputV2")
def convolve_back(d: Draw, operation: str) -> Use:
    spatial = 3 if "3D" in operation else 2
    batch: int | Several = d.rows_axis() if d.chance(0.9) else d.one(1, 4)
    space = [d.one(3, 4) for _ in range(spatial)]
    stride = d.one(1, 2)
    padding = d.one("SAME", "VALID")
    kernel = d.one(1, 2, 3)
    given = [-(-n // stride) if padding == "SAME" else -(-(n - kernel + 1) // stride) for n in space]
    sizes: Shape = [batch if d.chance(0.9) else d.one(ROWS_AXIS, 4), *space, 2]
    if d.chance(0.15):
        sizes = sizes[1:-1]
    return d.call(
        operation,
        input_sizes=d.dims(sizes),
        filter=d.tensor([*[kernel] * spatial, 2, 3]),
        out_backprop=d.tensor([batch, *given, 3]),
        strides=[1, *[stride] * spatial, 1],
        padding=padding,
    )


@recipe("BiasAdd BiasAddV1")
def add_bias(d: Draw, operation: str) -> Use:
    shape = d.shape(2, 5)
    layout = d.one("NHWC", "NHWC", "NCHW") if operation == "BiasAdd" else "NHWC"
    channels = 1 if layout == "NCHW" else -1
    bias = d.tensor([shape[channels] if isinstance(shape[channels], int) or d.chance(0.5) else 4])
    return d.call(
        operation, value=d.tensor(shape), bias=bias, **({"data_format": layout} if operation == "BiasAdd" else {})
    )


@recipe("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3")
def normalise(d: Draw, operation: str) -> Use:
    layout = d.one("NHWC", "NHWC", "NCHW")
    image = _image(d, 2, layout=layout)
    channels = image[1 if layout == "NCHW" else -1]
    sides: Shape = [channels if isinstance(channels, int) or d.chance(0.3) else 4]
    training = d.chance(0.2)
    names = ("scale", "offset", "mean", "variance")
    parameters = {each: d.tensor(sides, mode="positive") for each in names}
    if training:
        parameters |= {each: d.tensor([0]) for each in names[2:]}
    use = d.call(operation, x=d.tensor(image), **parameters, is_training=training, data_format=layout)
    return lambda x, u: use(x, u)[:1]


@recipe("LRN")
def normalise_channels(d: Draw, operation: str) -> Use:
    return d.call(operation, input=d.tensor(_image(d, channels=4)), depth_radius=d.one(1, 2))


@recipe("SpaceToDepth DepthToSpace")
def blocks(d: Draw, operation: str) -> Use:
    layout = d.one("NHWC", "NHWC", "NCHW")
    shape: Shape = [d.rows_axis(), 4, d.one(2, 4), d.one(4, 8)]
    if d.chance(0.2):
        place = d.one(1, 2, 3)
        shape[0], shape[place] = d.one(1, 2), ROWS_AXIS
    return d.call(operation, input=d.tensor(shape), block_size=2, data_format=layout)


@recipe("SpaceToBatchND BatchToSpaceND")
def space_and_batch(d: Draw, operation: str) -> Use:
    count = d.one(1, 2)
    sizes = [d.one(1, 2) for _ in range(count)]
    to_batch = operation == "SpaceToBatchND"
    blocks_in_all = sizes[0] * (sizes[1] if count == 2 else 1)
    batch: int | Several = (
        d.one(ROWS_AXIS, Several(2, 1), Several(1, 2))
        if to_batch
        else d.one(
            Several(blocks_in_all),
            Several(blocks_in_all),
            Several(1, blocks_in_all),
            Several(2 * blocks_in_all, 1),
            Several(blocks_in_all, 2),
            4,
        )
    )
    shape: Shape = [batch, *[d.one(2, 4) for _ in range(count)], *d.sizes(d.one(0, 1))]
    if d.chance(0.1):
        shape[0], shape[1] = 4, ROWS_AXIS
    edges = [[0, 0] if d.chance(0.6) else d.one([1, 1], [2, 0], [0, 1]) for _ in range(count)]
    name = "paddings" if to_batch else "crops"
    return d.call(operation, input=d.tensor(shape), block_shape=d.whole(sizes), **{name: d.whole(edges)})


@recipe("ResizeBilinear ResizeNearestNeighbor ResizeBicubic ResizeArea ScaleAndTranslate")
def resize(d: Draw, operation: str) -> Use:
    size = d.whole([d.one(1, 2, 5), d.one(2, 3)])
    images = d.tensor(_image(d))
    if operation == "ScaleAndTranslate":
        pairs = {
            "scale": d.tensor([2], mode="positive"),
            "translation": d.tensor([2] if d.chance(0.9) else [ROWS_AXIS]),
        }
        return d.call(operation, images=images, size=size, **pairs, antialias=d.chance(0.5))
    flags = (
        d.one({"align_corners": True}, {"half_pixel_centers": True}, {})
        if operation != "ResizeArea"
        else {"align_corners": d.chance(0.5)}
    )
    return d.call(operation, images=images, size=size, **flags)


@recipe("DecodeImage DecodeJpeg DecodeAndCropJpeg DecodePng DecodeBmp DecodeGif")
def decoded(d: Draw, operation: str) -> Use:
    file = encoded_image(operation, (d.one(2, 5), d.one(3, 4), 3), d.random)
    contents = d.one(Operand(lambda x, u: tf.constant(file)), d.tensor([ROWS_AXIS], tf.string))
    named = {"channels": d.one(0, 3)} if operation != "DecodeGif" else {}
    if operation == "DecodeImage":
        named["expand_animations"] = d.chance(0.3)
    if operation == "DecodeAndCropJpeg":
        named["crop_window"] = d.whole([0, 0, d.one(1, 2), 2])
    return d.call(operation, contents=contents, **named)


@recipe("AdjustContrastv2 AdjustSaturation AdjustHue RGBToHSV HSVToRGB")
def colours(d: Draw, operation: str) -> Use:
    shape: Shape = [*d.shape(0, 3), 3] if d.chance(0.85) else d.shape(1, 4)
    name = {"AdjustContrastv2": "contrast_factor", "AdjustSaturation": "scale", "AdjustHue": "delta"}.get(operation)
    images = d.tensor(shape, mode="unit")
    return d.call(operation, images=images, **({name: d.tensor([] if d.chance(0.9) else [ROWS_AXIS])} if name else {}))


@recipe("ExtractImagePatches")
def patches(d: Draw, operation: str) -> Use:
    named = {name: _window(d, 4, batch=0.05) for name in ("ksizes", "strides", "rates")}
    return d.call(operation, images=d.tensor(_image(d)), **named, padding=d.one("SAME", "VALID"))


@recipe("CropAndResize")
def crop(d: Draw, operation: str) -> Use:
    image: Shape = [d.one(ROWS_AXIS, ROWS_AXIS, Several(2), Several(1, 2), 1, 4), 3, 4, 2]
    boxes = d.tensor([ROWS_AXIS, 4], mode="unit")
    of = d.one(
        Operand(lambda x, u: tf.range(tf.shape(x)[0])),
        d.tensor([ROWS_AXIS], tf.int32, below=1),
        d.tensor([2], tf.int32, below=1),
    )
    return d.call(operation, image=d.tensor(image), boxes=boxes, box_ind=of, crop_size=d.whole([d.one(1, 2), 2]))


@recipe("CombinedNonMaxSuppression")
def suppress(d: Draw, operation: str) -> Use:
    batch: int | Several = d.rows_axis() if d.chance(0.9) else 2
    boxes, classes = d.one(2, 3), d.one(1, 2)
    return d.call(
        operation,
        boxes=d.tensor([batch, boxes, d.one(1, classes), 4], mode="unit"),
        scores=d.tensor([batch, boxes, classes], mode="unit"),
        max_output_size_per_class=d.whole(d.one(1, 2)),
        max_total_size=d.whole(d.one(1, 3)),
        iou_threshold=Operand(lambda x, u: tf.constant(0.5)),
        score_threshold=Operand(lambda x, u: tf.constant(-0.5)),
        pad_per_class=d.chance(0.4),
        clip_boxes=d.chance(0.6),
    )


@recipe("NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4 NonMaxSuppressionV5")
def suppress_boxes(d: Draw, operation: str) -> Use:
    count: int | Several = d.one(ROWS_AXIS, 3)
    arguments: dict[str, Any] = {
        "boxes": d.tensor([count, 4]),
        "scores": d.tensor([count]),
        "max_output_size": d.whole(2),
    }
    half = Operand(lambda x, u: tf.constant(0.5))
    if operation == "NonMaxSuppression":
        return d.call(operation, **arguments, iou_threshold=0.5)
    arguments["iou_threshold"] = half
    if operation[-1] in "345":
        arguments["score_threshold"] = half
    if operation[-1] == "5":
        arguments["soft_nms_sigma"] = half
    return d.call(operation, **arguments)


# --- ranges of types, random numbers ---


@recipe("QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4 QuantizeAndDequantize")
def quantize(d: Draw, operation: str) -> Use:
    shape = d.shape(1, 3)
    given = d.chance(0.8)
    axis = d.one(-1, -1, 0, 1)
    if operation == "QuantizeAndDequantize":
        return d.call(operation, input=d.tensor(shape), range_given=given, input_min=-2.0, input_max=3.0)
    side: Shape = [] if axis == -1 else [size_of(shape[min(axis, len(shape) - 1)])]
    low, high = d.tensor(side, mode="positive"), d.tensor(side, mode="positive")
    ends = {"input_min": Operand(lambda x, u: -low.make(x, u)), "input_max": high}
    if operation.endswith("V3"):
        ends["num_bits"] = d.whole(8, strange=0)
    return d.call(operation, input=d.tensor(shape), **ends, range_given=given, axis=axis, narrow_range=d.chance(0.3))


@recipe("QuantizeV2")
def quantize_whole(d: Draw, operation: str) -> Use:
    ends = {"min_range": Operand(lambda x, u: tf.constant(-2.0)), "max_range": Operand(lambda x, u: tf.constant(2.0))}
    return d.call(operation, input=d.any(), **ends, T=tf.quint8)


@recipe("FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel")
def fake_quantize(d: Draw, operation: str) -> Use:
    shape = d.shape(1, 4)
    if operation == "FakeQuantWithMinMaxArgs":
        return d.call(operation, inputs=d.tensor(shape))
    side: Shape = [shape[-1] if isinstance(shape[-1], int) else 4] if "Channel" in operation else d.one([], [], [1])
    low, high = d.tensor(side, mode="positive"), d.tensor(side, mode="positive")
    return d.call(operation, inputs=d.tensor(shape), min=Operand(lambda x, u: -low.make(x, u)), max=high)


@recipe("""
    StatelessRandomUniform StatelessRandomUniformV2 StatelessRandomNormal StatelessRandomNormalV2
    StatelessTruncatedNormal StatelessTruncatedNormalV2 StatelessRandomUniformInt StatelessRandomUniformIntV2
    StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatelessRandomGetKeyCounter
    StatelessRandomGetKeyCounterAlg StatelessRandomGetAlg
""")
def draw_numbers(d: Draw, operation: str) -> Use:
    seed = d.tensor([2], tf.int32, below=5) if d.chance(0.8) else d.tensor([ROWS_AXIS], tf.int32, below=5)
    if operation.startswith("StatelessRandomGet"):
        return d.call(operation, **({} if operation.endswith("GetAlg") else {"seed": seed}))
    arguments: dict[str, Any] = {"shape": d.dims(d.shape(0, 2, rows=0.3))}
    if "Int" in operation and "Full" not in operation:
        arguments |= {"minval": d.whole(0, strange=0), "maxval": d.whole(9)}
    if "V2" not in operation:
        return d.call(operation, seed=seed, **arguments, **({"dtype": tf.int32} if "Full" in operation else {}))

    def use(x: Any, u: Any) -> list[Any]:
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed.make(x, u))
        others = {name: each.make(x, u) for name, each in arguments.items()}
        made = {"dtype": tf.int32} if "FullInt" in operation else {}
        return [getattr(tf.raw_ops, operation)(key=key, counter=counter, alg=tf.constant(1), **others, **made)]

    return use
