"""Products of matrices, convolutions, pooling, normalisation, and the axes that they sum over."""

from __future__ import annotations

from math import prod

from app.runtimes.tensorflow.row_proof.abstract_values import (
    Numbers,
    Rows,
    Size,
    Taint,
    Uniform,
    Value,
    constant,
    ints_of,
    rows_at,
)
from app.runtimes.tensorflow.row_proof.call import Call, Results, rule
from app.runtimes.tensorflow.row_proof.dimensions import Dim, Shape, broadcast_dim, divided, has_space, times

# --- products ---


@rule("MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3")
def multiply(call: Call, a: Value, b: Value) -> Results:
    """A product [..., m, k] x [..., k, n]; axes before the last two are broadcast."""
    if any(len(call.shape(each)) < 2 for each in (a, b)):
        raise call.unknown("an operand is no matrix")
    flags = ("transpose_a", "transpose_b") if call.node.op == "MatMul" else ("adj_x", "adj_y")
    left, right = ("km" if call.flag(flags[0]) else "mk"), ("nk" if call.flag(flags[1]) else "kn")
    return _summed(call, (a, b), f"...{left},...{right}->...mn", "matrices")


@rule("Einsum")
def einsum(call: Call, *operands: Value) -> Results:
    return _summed(call, operands, call.text("equation"), "others")


def _summed(call: Call, operands: tuple[Value, ...], equation: str, others: str) -> Rows | Uniform:
    """The sum of products that an equation of np.einsum says. others: the elements of an operand without rows."""
    shapes = [call.shape(each) for each in operands]
    inputs, output = _labels(call, equation, shapes)
    sizes: dict[str, Dim] = {}
    for labels, shape in zip(inputs, shapes, strict=True):
        for label, dim in zip(labels, shape, strict=True):
            known = sizes.setdefault(label, dim)
            if not has_space(known):
                sizes[label] = dim if has_space(dim) else broadcast_dim(call.symbols, known, dim)
    new = tuple([sizes[label] for label in output])
    rows = [(each, labels[each.axis]) for each, labels in zip(operands, inputs, strict=True) if isinstance(each, Rows)]
    if not rows:
        return Uniform(new)
    _check_labels(call, operands, inputs, output, rows, others)
    first, label = rows[0]
    axis = output.index(label)
    new = (*new[:axis], first.shape[first.axis], *new[axis + 1 :])
    return rows_at(new, axis, first)


def _labels(call: Call, equation: str, shapes: list[Shape]) -> tuple[list[str], str]:
    """The labels of the axes of each operand and of the result; an ellipsis stands for other characters."""
    left, arrow, output = equation.replace(" ", "").partition("->")
    inputs = left.split(",")
    if not arrow or len(inputs) != len(shapes):
        raise call.unknown("its equation is not followed")
    most = 0
    found = []
    for labels, shape in zip(inputs, shapes, strict=True):
        expanded = labels
        if "..." in labels:
            count = len(shape) - len(labels) + 3
            most = max(most, count)
            expanded = labels.replace("...", "".join(chr(1000 - count + n) for n in range(count)))
        if len(expanded) != len(shape):
            raise call.unknown("its equation is not followed")
        found.append(expanded)
    return found, output.replace("...", "".join(chr(1000 - most + n) for n in range(most)))


def _check_labels(
    call: Call,
    operands: tuple[Value, ...],
    inputs: list[str],
    output: str,
    rows: list[tuple[Rows, str]],
    others: str,
) -> None:
    first, label = rows[0]
    if any(labels.count(label) > 1 for labels in inputs):
        raise call.mixes("takes a diagonal of the rows")
    if output.count(label) > 1:
        raise call.mixes("lays the rows along two axes")
    if any(each not in output for _, each in rows):
        raise call.mixes("sums over the rows")
    if any(each != label for _, each in rows):
        raise call.mixes("multiplies each row by all rows")
    if any(each.layout != first.layout for each, _ in rows):
        raise call.unknown("it multiplies rows that are laid out differently")
    for operand, labels in zip(operands, inputs, strict=True):
        if isinstance(operand, Uniform):
            if label in labels and call.shape(operand)[labels.index(label)] != 1:
                raise call.unknown(f"it multiplies rows by as many {others}")
        else:
            call.rows(operand)


# --- convolutions and pooling ---


def _spatial(call: Call, rank: int) -> tuple[list[int], int]:
    """The places of the axes of space, and that of the channels."""
    layout = call.text("data_format") or ("NDHWC" if rank == 5 else "NHWC")
    if layout in ("NHWC", "NDHWC", "NWC"):
        return list(range(1, rank - 1)), rank - 1
    if layout in ("NCHW", "NCDHW", "NCW"):
        return list(range(2, rank)), 1
    raise call.unknown(f"its data format is {layout}")


def _first_axis(call: Call, value: Value) -> Rows:
    rows = call.rows(value)
    if rows.axis != 0:
        raise call.unknown("the rows do not lie along axis 0")
    return rows


def for_images(call: Call, value: Value, new: Shape) -> Rows | Uniform:
    """A result of this shape for the images of an operand, which are rows along axis 0 or uniform."""
    if not isinstance(value, Uniform):
        _first_axis(call, value)
    return call.shaped(value, new)


@rule("Conv2D Conv3D DepthwiseConv2dNative")
def convolve(call: Call, value: Value, kernel: Value) -> Results:
    kernel_shape = call.shape(call.uniform(kernel, "kernel"))
    shape = call.shape(value)
    space, channels = _spatial(call, len(shape))
    strides, dilations = call.numbers("strides"), call.numbers("dilations") or [1] * len(shape)
    if strides[0] != 1 or dilations[0] != 1:
        raise call.unknown("it strides over rows")
    if isinstance(value, Rows) and value.axis == channels:
        raise call.mixes("adds up over the rows, which are its channels")
    if isinstance(value, Rows) and value.axis in space and kernel_shape[space.index(value.axis)] != 1:
        raise call.mixes("has a window over the rows")
    new = list(shape)
    for number, axis in enumerate(space):
        new[axis] = _window(call, shape[axis], kernel_shape[number], strides[axis], dilations[axis], axis)
    new[channels] = kernel_shape[-1]
    if call.node.op == "DepthwiseConv2dNative":
        a, b = kernel_shape[-2:]
        new[channels] = a * b if isinstance(a, int) and isinstance(b, int) else call.symbols.fresh()
    return for_images(call, value, tuple(new))


def _window(call: Call, dim: Dim, kernel: Dim, stride: int, dilation: int, axis: int) -> Dim:
    """The number of places that a window takes along an axis."""
    padding = call.text("padding")
    if padding == "SAME":
        return -(-dim // stride) if isinstance(dim, int) else dim if stride == 1 else call.size(("SAME", stride), dim)
    if padding not in ("VALID", "EXPLICIT"):
        raise call.unknown(f"its padding is {padding}")
    added = sum(call.numbers("explicit_paddings")[2 * axis : 2 * axis + 2]) if padding == "EXPLICIT" else 0
    if isinstance(dim, int) and isinstance(kernel, int):
        return max(0, -(-(dim + added - (kernel - 1) * dilation) // stride))
    return call.size(("VALID", added, stride, dilation), dim, kernel)


@rule("MaxPool AvgPool MaxPool3D AvgPool3D")
def pool(call: Call, value: Value) -> Results:
    shape = call.shape(value)
    space, channels = _spatial(call, len(shape))
    windows, strides = call.numbers("ksize"), call.numbers("strides")
    if windows[0] != 1 or strides[0] != 1:
        raise call.mixes("has a window over rows")
    new = list(shape)
    for axis in space:
        if windows[axis] != 1 or strides[axis] != 1:
            new[axis] = _window(call, shape[axis], windows[axis], strides[axis], 1, axis)
    if windows[channels] != 1 or strides[channels] != 1:
        if call.node.op != "MaxPool":  # others take such a window, and give other sizes
            raise call.unknown("it has a window over channels")
        new[channels] = call.symbols.fresh()
    return for_images(call, value, tuple(new))


@rule("MaxPoolWithArgmax")
def pool_with_places(call: Call, value: Value) -> Results:
    """The places of the greatest elements count from the first image, if the batch is part of them."""
    pooled = pool(call, value)
    if isinstance(pooled, Uniform):
        return [pooled, pooled]
    places = Taint("mixes", f"{call.name} gives places that count from the first row")
    return [pooled, places if call.flag("include_batch_in_index") else pooled]  # type: ignore[list-item]  # it is one


@rule("Conv2DBackpropInput Conv3DBackpropInputV2")
def convolve_back(call: Call, sizes: Value, kernel: Value, value: Value) -> Results:
    """A transposed convolution: the shape of its result is an operand."""
    call.uniform(kernel, "kernel")
    shape, wanted = call.shape(value), ints_of(sizes)
    _spatial(call, len(shape))
    if isinstance(value, Uniform):
        fixed = ints_of(call.uniform(sizes, "shape"))
        return Uniform(fixed if fixed and len(fixed) == len(shape) else None)  # sizes may be those of space alone
    rows = _first_axis(call, value)
    if call.numbers("strides")[0] != 1:
        raise call.unknown("it strides over rows")
    if wanted is None or len(wanted) == 2:  # without the rows
        if not isinstance(sizes, Uniform | Size):
            raise call.unknown("the shape that it makes depends on rows")
        raise call.unknown("the shape that it makes is not known")
    if wanted[0] != rows.shape[0] or any(map(has_space, wanted[1:])):
        raise call.unknown("it does not make one row for each row")
    return rows_at(wanted, 0, rows)


@rule("BiasAdd BiasAddV1")
def add_bias(call: Call, value: Value, bias: Value) -> Results:
    shape = call.shape(value)
    call.uniform(bias, "bias")
    channels = 1 if call.text("data_format").startswith("NC") else len(shape) - 1
    return call.along(value, [channels], unknown="it adds a value to each row by its place")


@rule("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3")
def normalise(call: Call, value: Value, *parameters: Value) -> Results:
    if isinstance(value, Rows) and call.flag("is_training", True):
        raise call.mixes("normalises by the mean of all rows: it is in training")
    call.check_uniform("mean or variance", *parameters)
    if isinstance(value, Rows):
        _first_axis(call, value)
        _spatial(call, len(value.shape))
    return [for_images(call, value, call.shape(value)), *[Uniform()] * 5]


@rule("LRN")
def normalise_channels(call: Call, value: Value) -> Results:
    return for_images(call, value, call.shape(value))


# --- blocks of images ---


@rule("SpaceToDepth DepthToSpace")
def blocks_and_depth(call: Call, value: Value) -> Results:
    shape = call.shape(value)
    if call.text("data_format", "NHWC") != "NHWC" or len(shape) != 4:
        raise call.unknown("its data format is not NHWC")
    block, to_depth = call.number("block_size"), call.node.op == "SpaceToDepth"

    def resized(dim: Dim, key: object, factor: int, *, grows: bool) -> Dim:
        if isinstance(dim, int):
            return dim * factor if grows else dim // factor
        return call.size(key, dim)

    space = [resized(dim, (call.node.op, block), block, grows=not to_depth) for dim in shape[1:3]]
    depth = resized(shape[3], (call.node.op, "depth", block), block * block, grows=to_depth)
    return for_images(call, value, (shape[0], *space, depth))


@rule("SpaceToBatchND BatchToSpaceND")
def blocks_and_rows(call: Call, value: Value, block: Value, margins: Value) -> Results:
    """Blocks become rows, [blocks, rows], block after block; or rows of that layout become blocks."""
    to_rows = call.node.op == "SpaceToBatchND"
    call.uniform(margins, "padding" if to_rows else "crop")
    shape, sizes, added = call.shape(value), call.constant(block, "block"), constant(margins)
    # 1. The sizes of space behind axis 0; others stay as they were.
    new = list(shape[1:])
    for number, size in enumerate(sizes):
        dim = new[number]
        if isinstance(dim, int) and added:
            margin = sum(added[2 * number : 2 * number + 2])
            new[number] = (dim + margin) // size if to_rows else dim * size - margin
        else:
            new[number] = call.symbols.fresh()
    if isinstance(value, Uniform):
        return Uniform((call.symbols.fresh(), *new))
    # 2. The rows.
    rows, count = _first_axis(call, value), prod(sizes)
    change = times if to_rows else divided
    outer, left = change(rows.outer, count), change(rows.shape[0], count)
    if outer is None or left is None:
        raise call.unknown("it joins rows into blocks")
    return Rows((left, *new), 0, outer, rows.block, rows.space)


# --- images ---


@rule("DecodeImage DecodeJpeg DecodeAndCropJpeg DecodePng DecodeBmp DecodeGif")
def decoded(call: Call, contents: Value, *window: Value) -> Results:
    """A file is one string, so that of a row is read in a loop over rows; the image has a size of its own."""
    call.check_uniform("file", contents, *window)
    if call.node.op == "DecodeImage" and call.flag("expand_animations", default=True):
        return Uniform()  # an animation has its frames in front
    frames = (call.symbols.fresh(),) if call.node.op == "DecodeGif" else ()
    channels = 3 if frames else call.number("channels") or call.symbols.fresh()
    return Uniform((*frames, call.symbols.fresh(), call.symbols.fresh(), channels))


@rule("ResizeBilinear ResizeNearestNeighbor ResizeBicubic ResizeArea ScaleAndTranslate")
def resize(call: Call, value: Value, size: Value, *others: Value) -> Results:
    call.check_uniform("size", size, *others)
    shape, known = call.shape(value), ints_of(size)
    new = known if known and all(map(call.symbols.is_size, known)) else (call.symbols.fresh(), call.symbols.fresh())
    return for_images(call, value, (shape[0], *new, shape[3]))


@rule("AdjustContrastv2 AdjustSaturation AdjustHue")
def adjust(call: Call, value: Value, by: Value) -> Results:
    """The last three axes are one image, which is computed alone."""
    call.uniform(by, "factor")
    return call.along(value, range(-3, 0), mixes="computes over an image whose axis are the rows")


@rule("RGBToHSV HSVToRGB")
def colours(call: Call, value: Value) -> Results:
    return call.along(value, [-1], unknown="its colours lie along the rows")


@rule("CropAndResize")
def crop(call: Call, image: Value, boxes: Value, images: Value, size: Value) -> Results:
    """The image of a box is an index: the place of the box's row, or another place."""
    known = ints_of(call.uniform(size, "size"))
    shape = call.shape(image)
    pixels = known if known and len(known) == 2 else (call.symbols.fresh(), call.symbols.fresh())
    if isinstance(image, Rows) and isinstance(images, Numbers) and isinstance(boxes, Rows):
        rows = images.rows
        same = boxes.axis == 0 and boxes.layout == rows.layout and image.axis == 0 and image.outer == 1
        if same and image.shape[0] == images.limit and len(rows.shape) == 1:
            return rows_at((rows.shape[0], *pixels, shape[3]), 0, rows)
    if isinstance(image, Uniform):
        raise call.unknown("it takes boxes of images that are the same for all rows")
    raise call.mixes("takes boxes of images by the values of all rows")


@rule("CombinedNonMaxSuppression")
def suppress(call: Call, boxes: Value, scores: Value, most: Value, total: Value, *limits: Value) -> Results:
    """An image is computed alone; its results are padded to the given numbers."""
    call.check_uniform("limit", most, total, *limits)
    a, b = _first_axis(call, boxes), _first_axis(call, scores)
    if not a.plain or a.layout != b.layout:
        raise call.unknown("boxes and scores are laid out differently")
    count = call.symbols.fresh()
    rows = a.shape[0]
    return [rows_at(shape, 0, a) for shape in ((rows, count, 4), (rows, count), (rows, count), (rows,))]
