"""Uses of ragged tensors, and of TensorFlow Text, whose library is loaded here."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from app.runtimes.tensorflow.operation_libraries.known_libraries import known_as
from app.runtimes.tensorflow.operation_libraries.needed import installed
from app.runtimes.tensorflow.operation_libraries.shared_libraries import Loadable
from app.runtimes.tensorflow.row_proof import rules  # noqa: F401 - entering the rules
from app.runtimes.tensorflow.row_proof.call import RULES
from tests.runtimes.tensorflow.row_proof.drawing import ROWS_AXIS, Draw, Operand, Use, made
from tests.runtimes.tensorflow.row_proof.uses import NOT_CALLED, recipe
from tests.support.models.sentencepieces import piece_model

_TEXTS = ["", "a", "the dog", " Big  dogs!", "una\u00e4ble, x", "\u65e5\u672c the", "z 12,5"]
_VOCABULARY = ["[UNK]", "the", "a", "do", "##g", "##s", "big", "Big", "un", "##a", "!", ",", "x", "1", "##2", "\u65e5"]


def _load(library: Loadable | None) -> dict[str, Callable[..., Any]]:
    """The functions of TensorFlow Text's operations, by their names with underscores."""
    found: dict[str, Callable[..., Any]] = {}
    for file in library.files if library else ():
        module = tf.load_op_library(file)
        found |= {name: getattr(module, name) for name in dir(module) if name.islower() and name[0] != "_"}
    return found


_KNOWN = known_as("tensorflow-text")
assert _KNOWN is not None
_LIBRARY = installed(_KNOWN)
if _LIBRARY is None:  # `make oldest` has that of another TensorFlow
    NOT_CALLED |= {name: "needs TensorFlow Text for this TensorFlow" for name in RULES if _KNOWN.has(name)}
_TEXT_OPERATIONS = _load(_LIBRARY)


def _texts(d: Draw) -> Operand:
    """Strings with tokens: one a row, mostly."""
    numbers = d.tensor([ROWS_AXIS] if d.chance(0.85) else d.shape(1, 2), tf.int32, below=len(_TEXTS))
    return Operand(lambda x, u: tf.gather(tf.constant(_TEXTS), tf.clip_by_value(numbers.make(x, u), 0, 6)))


def _called(name: str, *operands: Any, ragged: Parts | None = None, place: int = 0, **attributes: Any) -> Use:
    """A use with these operands, at `place` among them the values and row splits of a ragged tensor."""

    def use(x: Any, u: Any) -> list[Any]:
        made_operands = [made(each, x, u) for each in operands]
        made_operands[place:place] = ragged(x, u) if ragged else ()
        return _flat(_TEXT_OPERATIONS[name](*made_operands, **attributes))

    return use


def _flat(results: Any) -> list[Any]:
    return list(tf.nest.flatten(list(results) if isinstance(results, tuple) else results))


Parts = Callable[[Any, Any], tuple[Any, Any]]


def _ragged(d: Draw, dtype: Any = tf.int32) -> Parts:
    """The values and row splits of a ragged tensor: the code points of texts, or what is made of them."""
    texts = _texts(d)
    strange = d.strange(tf.int64) if d.chance(0.1) else None

    def parts(x: Any, u: Any) -> tuple[Any, Any]:
        decoded = tf.raw_ops.UnicodeDecode(input=texts.make(x, u), input_encoding="UTF-8")
        points = decoded.char_values % 5
        values = tf.strings.as_string(points) if dtype == tf.string else tf.cast(points, dtype)
        return values, strange.make(x, u) if strange else decoded.row_splits

    return parts


# --- TensorFlow's own ---


@recipe("RaggedTensorToTensor")
def to_dense(d: Draw, operation: str) -> Use:
    parts = _ragged(d)
    size = d.dims(d.one([None, 3], [None, 2], [ROWS_AXIS, 4], [None, None], [4, 3]))
    if d.chance(0.3):
        words = _texts(d)

        def by_numbers(x: Any, u: Any) -> list[Any]:
            split = tf.raw_ops.StringSplitV2(input=words.make(x, u), sep=tf.constant(" "))
            return [
                tf.raw_ops.RaggedTensorToTensor(
                    shape=tf.cast(size.make(x, u), tf.int64),
                    values=split.values,
                    default_value="",
                    row_partition_tensors=[split.shape[0], split.indices[:, 0]],
                    row_partition_types=["FIRST_DIM_SIZE", "VALUE_ROWIDS"],
                )
            ]

        return by_numbers
    default = d.whole(d.one(0, 7), strange=0.1)

    def by_splits(x: Any, u: Any) -> list[Any]:
        values, splits = parts(x, u)
        return [
            tf.raw_ops.RaggedTensorToTensor(
                shape=size.make(x, u),
                values=values,
                default_value=default.make(x, u),
                row_partition_tensors=[splits],
                row_partition_types=["ROW_SPLITS"],
            )
        ]

    return by_splits


@recipe("RaggedRange")
def ragged_range(d: Draw, operation: str) -> Use:
    parts, numbers = _ragged(d), d.tensor([ROWS_AXIS], tf.int64, below=4)
    start, limit = d.one("begin", "begin", "zero", "number"), d.one("end", "end", "length", "number")
    delta = d.one(1, 1, 1, 2)

    def use(x: Any, u: Any) -> list[Any]:
        _, splits = parts(x, u)
        options = {
            "begin": splits[:-1],
            "end": splits[1:],
            "length": splits[1:] - splits[:-1],
            "zero": tf.constant(0, tf.int64),
            "number": numbers.make(x, u),
        }
        return list(
            tf.raw_ops.RaggedRange(starts=options[start], limits=options[limit], deltas=tf.constant(delta, tf.int64))
        )

    return use


@recipe("UnicodeDecode UnicodeDecodeWithOffsets")
def decode(d: Draw, operation: str) -> Use:
    return d.call(operation, input=_texts(d), input_encoding="UTF-8")


@recipe("UnicodeEncode")
def encode(d: Draw, operation: str) -> Use:
    parts = _ragged(d)

    def use(x: Any, u: Any) -> list[Any]:
        values, splits = parts(x, u)
        return [tf.raw_ops.UnicodeEncode(input_values=values, input_splits=splits, output_encoding="UTF-8")]

    return use


@recipe("StringNGrams")
def ngrams(d: Draw, operation: str) -> Use:
    parts = _ragged(d, tf.string)
    attributes = {
        "separator": " ",
        "ngram_widths": d.one([1], [2, 3]),
        "left_pad": d.one("", "<"),
        "right_pad": "",
        "pad_width": d.one(0, -1),
        "preserve_short_sequences": d.chance(0.5),
    }

    def use(x: Any, u: Any) -> list[Any]:
        values, splits = parts(x, u)
        return list(tf.raw_ops.StringNGrams(data=values, data_splits=splits, **attributes))

    return use


@recipe("RaggedGather")
def gather(d: Draw, operation: str) -> Use:
    """Ragged tensors side by side, as tf.concat makes them; or one of its steps is another."""
    parts = [_ragged(d) for _ in range(d.one(2, 3))]
    wrong = d.one("", "", "", "turn", "places", "splits", "values", "dense")

    def use(x: Any, u: Any) -> list[Any]:
        made = [each(x, u) for each in parts]
        values, splits = [each for each, _ in made], [each for _, each in made]
        count, rows = len(parts), tf.shape(splits[0], tf.int64)[0] - 1
        joined, behind = [splits[0]], splits[0][-1]
        for each in splits[1:]:
            joined.append(each[1:] + (each[-1] if wrong == "splits" else behind))
            behind += each[-1]
        places = tf.reshape(tf.range(count * rows), [count, -1])
        taken_places = tf.reshape(places if wrong == "turn" else tf.transpose(places), [-1])
        if wrong == "dense":
            values[0] = tf.cast(x[:, 0] > 0, tf.int32)
        taken = tf.raw_ops.RaggedGather(
            params_nested_splits=[tf.concat(joined, 0)],
            params_dense_values=tf.concat(values[::-1] if wrong == "values" else values, 0),
            indices=taken_places // 2 if wrong == "places" else taken_places,
            OUTPUT_RAGGED_RANK=1,
        )
        return [taken.output_nested_splits[0][::count], taken.output_dense_values]

    return use


# --- TensorFlow Text ---


@recipe("CaseFoldUTF8 NormalizeUTF8")
def unicode(d: Draw, operation: str) -> Use:
    if operation == "CaseFoldUTF8":
        return _called("case_fold_utf8", d.any(tf.string, 0))
    return _called("normalize_utf8", d.any(tf.string, 0), normalization_form=d.one("NFC", "NFKD"))


@recipe("RegexSplitWithOffsets")
def by_pattern(d: Draw, operation: str) -> Use:
    return _called("regex_split_with_offsets", _texts(d), d.one(r"\s", r"[ ,]"), d.one("", ","))


@recipe("WordpieceTokenizeWithOffsets")
def wordpieces(d: Draw, operation: str) -> Use:
    kind = d.one("row_splits", "row_lengths")
    texts = _texts(d)

    def use(x: Any, u: Any) -> list[Any]:
        keys = tf.constant(_VOCABULARY)
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(keys, tf.range(len(_VOCABULARY), dtype=tf.int64)), -1
        )
        call = _TEXT_OPERATIONS["wordpiece_tokenize_with_offsets"]
        return list(
            call(
                texts.make(x, u),
                table.resource_handle,
                suffix_indicator="##",
                max_bytes_per_word=100,
                max_chars_per_token=0,
                use_unknown_token=True,
                unknown_token="[UNK]",  # noqa: S106 - a token of text
                split_unknown_characters=False,
                output_row_partition_type=kind,
            )
        )

    return use


def _bytes(model: bytes) -> Operand:
    return Operand(lambda x, u: tf.constant(np.frombuffer(model, np.uint8)))


@cache
def _fast_model() -> bytes:
    from tensorflow_text.core.pybinds import (  # noqa: PLC0415 - slow to import
        pywrap_fast_wordpiece_tokenizer_model_builder as builder,
    )

    return bytes(builder.build_fast_wordpiece_model(_VOCABULARY, 100, "##", "[UNK]", False, True))


@recipe("FastWordpieceTokenizeWithOffsets")
def fast_wordpieces(d: Draw, operation: str) -> Use:
    return _called("fast_wordpiece_tokenize_with_offsets", _texts(d), _bytes(_fast_model()))


@recipe("TFText>FastWordpieceDetokenize")
def fast_words(d: Draw, operation: str) -> Use:
    return _called("tf_text_fast_wordpiece_detokenize", _bytes(_fast_model()), ragged=_ragged(d))


@recipe("FastBertNormalize")
def normalize(d: Draw, operation: str) -> Use:
    from tensorflow_text.core.pybinds import (  # noqa: PLC0415 - slow to import
        pywrap_fast_bert_normalizer_model_builder as builder,
    )

    model = _bytes(bytes(builder.build_fast_bert_normalizer_model(True)))
    return _called("fast_bert_normalize", _texts(d), model, get_offsets=d.chance(0.5))


@recipe("TFText>WhitespaceTokenizeWithOffsetsV2")
def words(d: Draw, operation: str) -> Use:
    from tensorflow_text.core.pybinds import (  # noqa: PLC0415 - slow to import
        pywrap_whitespace_tokenizer_config_builder as builder,
    )

    return _called(
        "tf_text_whitespace_tokenize_with_offsets_v2", _texts(d), builder.build_whitespace_tokenizer_config()
    )


@recipe("TFText>ByteSplitWithOffsets")
def byte_by_byte(d: Draw, operation: str) -> Use:
    return _called("tf_text_byte_split_with_offsets", _texts(d))


@recipe("UnicodeScriptTokenizeWithOffsets")
def of_code_points(d: Draw, operation: str) -> Use:
    texts = _texts(d)

    def use(x: Any, u: Any) -> list[Any]:
        points = tf.raw_ops.UnicodeDecode(input=texts.make(x, u), input_encoding="UTF-8")
        return list(_TEXT_OPERATIONS["unicode_script_tokenize_with_offsets"](points.char_values, points.row_splits))

    return use


# --- sentencepieces ---


def _model() -> Any:
    return _TEXT_OPERATIONS["sentencepiece_op"](model=piece_model())


def _flags(d: Draw) -> list[bool]:
    return [d.chance(0.3) for _ in range(3)]


@recipe("SentencepieceTokenizeOp SentencepieceTokenizeWithOffsetsOp")
def pieces(d: Draw, operation: str) -> Use:
    offsets = "_with_offsets" if "With" in operation else ""
    best = d.one(0, 1, 0, 1, 0, 3)
    model = Operand(lambda x, u: _model())
    return _called(
        f"sentencepiece_tokenize{offsets}_op",
        model,
        _texts(d),
        best,
        0.5,
        *_flags(d),
        out_type=d.one(tf.int32, tf.string),
        return_nbest=best == 3,
    )


@recipe("SentencepieceDetokenizeOp")
def text_of_pieces(d: Draw, operation: str) -> Use:
    model = Operand(lambda x, u: _model())
    return _called("sentencepiece_detokenize_op", model, *_flags(d), ragged=_ragged(d), place=1)


@recipe("SentencepieceIdToStringOp SentencepieceStringToIdOp")
def piece(d: Draw, operation: str) -> Use:
    is_number = operation == "SentencepieceIdToStringOp"
    values = d.any(tf.int32, 1, 2, below=4) if is_number else d.any(tf.string, 1, 2)
    name = "sentencepiece_id_to_string_op" if is_number else "sentencepiece_string_to_id_op"
    return _called(name, Operand(lambda x, u: _model()), values)


@recipe("SentencepieceOp SentencepieceVocabSizeOp")
def of_model(d: Draw, operation: str) -> Use:
    return lambda x, u: [_TEXT_OPERATIONS["sentencepiece_vocab_size_op"](_model())]


@cache
def _fast_pieces(*, backwards: bool = False) -> bytes:
    from tensorflow_text.core.pybinds import pywrap_model_converter as converter  # noqa: PLC0415 - slow to import

    convert = converter.convert_sentencepiece_model_for_decoder if backwards else converter.convert_sentencepiece_model
    return bytes(convert(piece_model()))


@recipe("TFText>FastSentencepieceTokenize")
def fast_pieces(d: Draw, operation: str) -> Use:
    model = _bytes(_fast_pieces())
    return _called("tf_text_fast_sentencepiece_tokenize", model, _texts(d), 0, 0.0, False, False, False)


@recipe("TFText>FastSentencepieceDetokenize")
def text_of_fast_pieces(d: Draw, operation: str) -> Use:
    model = _bytes(_fast_pieces(backwards=True))
    return _called("tf_text_fast_sentencepiece_detokenize", model, ragged=_ragged(d), place=1)


# --- rows of tokens ---


@recipe("TFText>NgramsStringJoin")
def string_ngrams(d: Draw, operation: str) -> Use:
    parts, width = _ragged(d, tf.string), d.one(1, 2)

    def use(x: Any, u: Any) -> list[Any]:
        values, splits = parts(x, u)
        call = _TEXT_OPERATIONS["tf_text_ngrams_string_join"]
        return _flat(call(values, [splits], width=width, axis=-1, string_separator=" "))

    return use


@recipe("TFText>RoundRobinTrim TFText>RoundRobinGenerateMasks")
def trim(d: Draw, operation: str) -> Use:
    name = "tf_text_round_robin_trim" if operation.endswith("Trim") else "tf_text_round_robin_generate_masks"
    segments, longest = [_ragged(d) for _ in range(d.one(1, 2))], d.whole(d.one(0, 2, 5))

    def use(x: Any, u: Any) -> list[Any]:
        parts = [each(x, u) for each in segments]
        values, splits = [list(each) for each in zip(*parts, strict=True)]
        return _flat(_TEXT_OPERATIONS[name](longest.make(x, u), values, splits))

    return use
