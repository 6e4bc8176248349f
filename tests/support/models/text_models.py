"""SavedModels with TensorFlow Text in their graphs, and the answers of direct calls: a program, for its library stays.

    python -m tests.support.models.text_models FOLDER

A process that imports tensorflow_text has its operations until it ends, so tests run this in a process of its own. It
writes FOLDER/NAME/1 for each of MODELS, and FOLDER.json: the texts, and by model the direct call's answer for each text
by itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text

from tests.support.models.sentencepieces import piece_model

TEXTS = [
    "the quick brown fox jumps over the lazy dog",
    "",
    "Big dogs!",
    "Ünable, x  y\tz",
    "日本 the dog",
    "a " * 40,
    "12 apples, 5 pears!",
    "   ",
    "unwantable",
    "a model makes pieces of words",
]

_WORDS = (
    "[PAD] [UNK] [CLS] [SEP] the quick brown fox jump ##s over lazy dog big a un ##a ##b ##le ##want ##able , ! x y z"
)
_LENGTH = 12

Body = Callable[[Any], Any]


def _vocabulary(folder: Path) -> Any:
    file = folder.with_suffix(".words")
    file.write_text("\n".join(_WORDS.split()))
    index = tf.lookup.TextFileIndex
    words = tf.lookup.TextFileInitializer(str(file), tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER)
    return tf.lookup.StaticVocabularyTable(words, 1)


def _bert(module: Any, folder: Path) -> Body:
    module.table = _vocabulary(folder)
    module.tokenizer = tensorflow_text.BertTokenizer(module.table, token_out_type=tf.int64, lower_case=True)
    return lambda text: module.tokenizer.tokenize(text).merge_dims(-2, -1)


def _fast_bert(module: Any, folder: Path) -> Body:
    module.tokenizer = tensorflow_text.FastBertTokenizer(vocab=_WORDS.split(), lower_case_nfd_strip_accents=True)
    tokenize: Body = module.tokenizer.tokenize
    return tokenize


def _pieces(module: Any, folder: Path) -> Body:
    module.tokenizer = tensorflow_text.SentencepieceTokenizer(piece_model(), out_type=tf.int32)
    tokenize: Body = module.tokenizer.tokenize
    return tokenize


def _pooled(module: Any, tokens: Any) -> Any:
    """Token numbers padded, looked up, averaged and classified."""
    random = np.random.default_rng(0)
    if not hasattr(module, "table_of_vectors"):
        module.table_of_vectors = tf.Variable(random.normal(size=(64, 8)).astype("float32"))
        module.layer = tf.Variable(random.normal(size=(8, 3)).astype("float32"))
    numbers = tokens.to_tensor(default_value=0, shape=[None, _LENGTH])
    present = tf.sequence_mask(tf.minimum(tokens.row_lengths(), _LENGTH), _LENGTH, tf.float32)[..., None]
    sums = tf.reduce_sum(tf.gather(module.table_of_vectors, numbers) * present, 1)
    return tf.nn.softmax(sums / tf.maximum(tf.reduce_sum(present, 1), 1.0) @ module.layer)


def _ngrams(module: Any, folder: Path) -> Body:
    module.tokenizer = tensorflow_text.WhitespaceTokenizer()

    def body(text: Any) -> Any:
        plain = tensorflow_text.normalize_utf8(tensorflow_text.case_fold_utf8(text), "NFKC")
        join = tensorflow_text.Reduction.STRING_JOIN
        pairs = tensorflow_text.ngrams(module.tokenizer.tokenize(plain), 2, reduction_type=join, string_separator=" ")
        return tf.strings.to_hash_bucket_fast(pairs, 100).to_tensor(default_value=-1, shape=[None, 8])

    return body


def _packed(module: Any, folder: Path) -> Body:
    """The inputs of BERT: [CLS] tokens [SEP], cut and padded."""
    tokens_of = _bert(module, folder)

    def body(text: Any) -> Any:
        (tokens,) = tensorflow_text.RoundRobinTrimmer(_LENGTH - 2).trim([tokens_of(text)])
        segments, _ = tensorflow_text.combine_segments([tokens], start_of_sequence_id=2, end_of_segment_id=3)
        numbers, mask = tensorflow_text.pad_model_inputs(segments, _LENGTH)
        return numbers * 2 + mask

    return body


#: By name: the tokens, or what else is made of a text, and whether they are padded and classified.
MODELS: dict[str, tuple[Callable[[Any, Path], Body], bool]] = {
    "bert": (_bert, True),
    "bert_tokens": (_bert, False),
    "fast_bert": (_fast_bert, True),
    "sentencepiece": (_pieces, True),
    "sentencepiece_tokens": (_pieces, False),
    "ngrams": (_ngrams, False),
    "packed": (_packed, False),
}


def _made(folder: Path, name: str) -> list[Any]:
    """Saves a model; returns the direct calls' answers."""
    make, pooled = MODELS[name]
    module = tf.Module()
    body = make(module, folder)

    def call(text: Any) -> dict[str, Any]:
        found = body(text)
        return {"y": _pooled(module, found) if pooled else found}

    module.call = tf.function(call, input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    tf.saved_model.save(module, str(folder / name / "1"), signatures=module.call)
    function = tf.saved_model.load(str(folder / name / "1")).signatures["serving_default"]
    answers = [function(text=tf.constant([text]))["y"] for text in TEXTS]
    return [each.to_list()[0] if isinstance(each, tf.RaggedTensor) else each.numpy()[0].tolist() for each in answers]


def main(folder: str) -> None:
    answers = {name: _made(Path(folder), name) for name in MODELS}
    Path(folder).with_suffix(".json").write_text(json.dumps({"texts": TEXTS, "answers": answers}))


if __name__ == "__main__":
    main(sys.argv[1])
