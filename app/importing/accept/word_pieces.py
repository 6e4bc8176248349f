"""The tokenizer of BERT's family, from the files of a snapshot: `vocab.txt` and `tokenizer_config.json`.

In the graph by TensorFlow Text, and once more in plain Python for the proof. Texts are as long as the longest of a
call; what is beyond the model's positions is cut. Special tokens within a text, such as `[MASK]`, are text.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import Array
from app.importing.accept.front import Front
from app.importing.order import CannotImport
from app.importing.source import Endpoint, Tensors

_VOCABULARY = "vocab.txt"

#: The largest file of a vocabulary. Chosen: ten times that of a multilingual BERT.
_MOST_BYTES = 10 << 20

#: Characters of a word beyond which it is unknown, and a word that is in no vocabulary: a character for private use.
_LONGEST_WORD, _UNKNOWN_WORD = 100, "\ue000"

#: What stands for bytes that are no text.
_BROKEN = "\N{REPLACEMENT CHARACTER}"

#: Tokenizers that are this one.
_CLASSES = ("Bert", "DistilBert", "Electra", "MobileBert", "ConvBert", "Funnel", "LayoutLM", "SqueezeBert")

#: Positions of a model that does not say how many it has.
_POSITIONS = 512

#: Characters that are words of their own: those of Chinese, and, in the graph, of punctuation.
_CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ceaf\U0002f800-\U0002fa1f"
_KEPT = rf"[!-/:-@\[-`{{-~\p{{P}}{_CHINESE}]"


@dataclass(frozen=True, slots=True)
class WordPieces:
    """A vocabulary, and how texts become its numbers.

    length: the most tokens of a text, with those at its ends.
    """

    numbers: Mapping[str, int]
    lower: bool
    strip_accents: bool
    unknown: str
    begin: int
    end: int
    pad: int
    length: int


def has_word_pieces(source: Path) -> bool:
    return (source / _VOCABULARY).is_file()


def word_piece_front(source: Path, endpoint: Endpoint) -> Front:
    """Texts in place of the tokens of a model. Raises CannotImport: the tokenizer, or the model, is another one."""
    pieces = _read(source, endpoint)
    tokenize, table = _tokenizer(pieces)

    def call(texts: Any) -> Tensors:
        ids = tokenize(texts)
        made = {"input_ids": ids, "attention_mask": tf.ones_like(ids), "token_type_ids": tf.zeros_like(ids)}
        pads = {"input_ids": pieces.pad}
        return {
            name: tf.cast(made[name].to_tensor(pads.get(name, 0), shape=[None, _width(endpoint, name)]), spec.dtype)
            for name, spec in endpoint.inputs.items()
        }

    def run(texts: Array) -> Mapping[str, Array]:
        rows = [list(_ids(pieces, text.decode())) for text in texts]
        made = {"input_ids": rows, "attention_mask": [[1] * len(row) for row in rows], "token_type_ids": []}
        pads = {"input_ids": pieces.pad}
        longest = max(map(len, rows), default=0)
        arrays = {}
        for name, spec in endpoint.inputs.items():
            array = np.full((len(rows), _width(endpoint, name) or longest), pads.get(name, 0))
            for number, row in enumerate(made[name]):
                array[number, : len(row)] = row
            arrays[name] = array.astype(spec.dtype.as_numpy_dtype)
        return arrays

    spec = tf.TensorSpec([None], tf.string)
    note = f"text becomes {', '.join(sorted(endpoint.inputs))} by {_VOCABULARY}, at most {pieces.length} tokens"
    return Front("text", spec, frozenset(endpoint.inputs), call, run, note, (table,))


def _width(endpoint: Endpoint, name: str) -> int | None:
    width: int | None = endpoint.inputs[name].shape[1]
    return width


# --- the files ---


def _read(source: Path, endpoint: Endpoint) -> WordPieces:
    config = _json(source / "tokenizer_config.json")
    kind = str(config.get("tokenizer_class") or "BertTokenizer").removesuffix("Fast").removesuffix("Tokenizer")
    if kind not in _CLASSES or config.get("tokenize_chinese_chars") is False:
        raise CannotImport(f"--accept text: a tokenizer of WordPiece as BERT's is expected; the source has {kind}'s")
    allowed = {"input_ids", "attention_mask", "token_type_ids"}
    if not {"input_ids"} <= endpoint.inputs.keys() <= allowed:
        expected = ", ".join(sorted(allowed))
        raise CannotImport(f"--accept text: the inputs are {', '.join(endpoint.inputs)}; expected are {expected}")
    with (source / _VOCABULARY).open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise CannotImport(f"{source / _VOCABULARY} is longer than {_MOST_BYTES:,} bytes")
    numbers = {word: number for number, word in enumerate(content.decode(errors="replace").splitlines())}
    special = {name: _token(config, name, token) for name, token in _SPECIAL.items()}
    if missing := [token for token in special.values() if token not in numbers]:
        raise CannotImport(f"{source / _VOCABULARY} lacks the token {missing[0]}")
    lower = config.get("do_lower_case") is not False
    accents = config.get("strip_accents")
    begin, end, pad = (numbers[special[name]] for name in ("cls_token", "sep_token", "pad_token"))
    strips = lower if accents is None else bool(accents)
    return WordPieces(numbers, lower, strips, special["unk_token"], begin, end, pad, _length(source, config, endpoint))


_SPECIAL = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}


def _token(config: Mapping[str, Any], name: str, usual: str) -> str:
    found = config.get(name, usual)
    return str(found.get("content", usual) if isinstance(found, dict) else found)


def _length(source: Path, config: Mapping[str, Any], endpoint: Endpoint) -> int:
    model = _json(source / "config.json")
    widths = [_width(endpoint, name) for name in endpoint.inputs]
    known = [*widths, config.get("model_max_length"), model.get("max_position_embeddings")]
    return max(2, min([each for each in known if isinstance(each, int)], default=_POSITIONS))


def _json(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_bytes()[:_MOST_BYTES])
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise CannotImport(f"{file} is no JSON: {error}") from None
    return document if isinstance(document, dict) else {}


# --- in the graph ---


def _tokenizer(pieces: WordPieces) -> tuple[Any, Any]:
    """The function from texts to ragged numbers of tokens, and its table."""
    try:
        import tensorflow_text as tf_text  # noqa: PLC0415 - only here, where it is installed
    except ImportError:
        raise CannotImport("--accept text needs TensorFlow Text here: pip install 'ferry-serving[text]'") from None
    unknown = pieces.numbers[pieces.unknown]
    words, values = list(pieces.numbers), list(pieces.numbers.values())
    initial = tf.lookup.KeyValueTensorInitializer(tf.constant(words), tf.constant(values, tf.int64))
    table = tf.lookup.StaticHashTable(initial, unknown)
    split = tf_text.WordpieceTokenizer(table, max_bytes_per_word=4 * _LONGEST_WORD, unknown_token=pieces.unknown)

    def tokenize(texts: Any) -> Any:
        texts = tf.strings.regex_replace(texts, r"[\t\n\r\p{Zs}]", " ")
        texts = tf.strings.regex_replace(texts, rf"[{_BROKEN}\p{{C}}]", "")
        if pieces.lower:
            texts = tf.strings.lower(tf.strings.regex_replace(texts, "Σ", "σ"), "utf-8")  # never a final sigma
        if pieces.strip_accents:
            texts = tf.strings.regex_replace(tf_text.normalize_utf8(texts, "NFD"), r"\p{Mn}", "")
        found = tf_text.regex_split(texts, rf" +|{_KEPT}", _KEPT)
        long = rf"^.{{{_LONGEST_WORD + 1},}}$"
        found = found.with_flat_values(tf.strings.regex_replace(found.flat_values, long, _UNKNOWN_WORD))
        ids = split.tokenize(found).merge_dims(1, 2)[:, : pieces.length - 2]
        ends = tf.ones([tf.shape(texts)[0], 1], tf.int64)
        return tf.concat([pieces.begin * ends, ids, pieces.end * ends], 1)

    return tokenize, table


# --- in Python ---


def _ids(pieces: WordPieces, text: str) -> Iterator[int]:
    """The numbers of one text, as the authors of BERT have defined them."""
    found = [number for word in _words(pieces, text) for number in _parts(pieces, word)]
    yield pieces.begin
    yield from found[: pieces.length - 2]
    yield pieces.end


def _words(pieces: WordPieces, text: str) -> Sequence[str]:
    clean = "".join(
        " " if each in "\t\n\r" or unicodedata.category(each) == "Zs" else each
        for each in text
        if each in "\t\n\r" or (unicodedata.category(each)[0] != "C" and each != _BROKEN)
    )
    small = "".join(each.lower() for each in clean) if pieces.lower else clean
    spaced = re.sub(f"([{_CHINESE}])", r" \1 ", small)
    if pieces.strip_accents:
        apart = unicodedata.normalize("NFD", spaced)
        spaced = "".join(each for each in apart if unicodedata.category(each) != "Mn")
    return "".join(f" {each} " if _is_punctuation(each) else each for each in spaced).split()


def _is_punctuation(character: str) -> bool:
    if ord(character) < 128:
        return not character.isalnum() and not character.isspace()
    return unicodedata.category(character)[0] == "P"


def _parts(pieces: WordPieces, word: str) -> list[int]:
    """The longest pieces from the front; unknown as a whole if a part of it is in no piece."""
    found: list[int] = []
    begin, unknown = 0, [pieces.numbers[pieces.unknown]]
    while begin < len(word):
        start = "##" if begin else ""
        ends = (end for end in range(len(word), begin, -1) if start + word[begin:end] in pieces.numbers)
        end = next(ends, None)
        if end is None or len(word) > _LONGEST_WORD:
            return unknown
        found.append(pieces.numbers[start + word[begin:end]])
        begin = end
    return found
