"""TensorFlow Text: strings become any number of tokens, each string by itself.

Kernels of tensorflow_text/core/kernels: each loops over strings or rows, and keeps nothing from one to the next; a
vocabulary or a model is an operand, which all requests share. CaseFoldUTF8 and NormalizeUTF8 are in elementwise.py.
PhraseTokenize has no rule: its model may say that it leaves out phrases by chance.
"""

from __future__ import annotations

from app.runtimes.tensorflow.row_proof.abstract_values import Rows, Splits, Uniform, Value, constant, entries_of
from app.runtimes.tensorflow.row_proof.call import Call, Results, rule
from app.runtimes.tensorflow.row_proof.rules.ragged import check_entries, splits_of, strings

# --- tokens of strings: the order of the results differs ---


def _tokens(call: Call, text: Value, *shared: Value) -> tuple[Rows, Splits]:
    """What there is for each token, and the row splits."""
    call.check_uniform("vocabulary, model or pattern", *shared)
    rows = strings(call, text)
    space = call.symbols.new_space()
    return entries_of(space), Splits(space, rows.space)


@rule("RegexSplitWithOffsets")
def by_pattern(call: Call, text: Value, delimiters: Value, kept: Value) -> Results:
    token, splits = _tokens(call, text, delimiters, kept)
    return [token, token, token, splits]


@rule("WordpieceTokenizeWithOffsets")
def wordpieces(call: Call, text: Value, vocabulary: Value) -> Results:
    """The kernel looks up pieces in a table; it gives row splits or the lengths of rows."""
    rows = strings(call, text)
    token, splits = _tokens(call, text, vocabulary)
    by_splits = call.text("output_row_partition_type", "row_lengths") == "row_splits"
    return [token, splits if by_splits else entries_of(rows.space), token, token]


@rule("FastWordpieceTokenizeWithOffsets")
def fast_wordpieces(call: Call, text: Value, model: Value) -> Results:
    token, splits = _tokens(call, text, model)
    return [token, token, splits, token, token]


@rule("TFText>WhitespaceTokenizeWithOffsetsV2")
def words(call: Call, text: Value, configuration: Value) -> Results:
    token, splits = _tokens(call, text, configuration)
    return [token, splits, token, token]


@rule("TFText>ByteSplitWithOffsets")
def byte_by_byte(call: Call, text: Value) -> Results:
    token, splits = _tokens(call, text)
    return [token, splits, token, token]


@rule("""
    SentencepieceTokenizeOp SentencepieceTokenizeWithOffsetsOp TFText>FastSentencepieceTokenize
""")
def sentencepieces(call: Call, model: Value, text: Value, best: Value, *options: Value) -> Results:
    """With a number of best ones other than 0 and 1 it draws one of them, or gives all."""
    call.check_uniform("model or option", model, best, *options)
    if constant(best) not in ([0], [1]) or call.flag("return_nbest"):
        raise call.unknown("it draws tokens by chance, or gives several rows for a string")
    token, splits = _tokens(call, text)
    offsets = [token, token] if call.node.op == "SentencepieceTokenizeWithOffsetsOp" else []
    return [token, splits, *offsets]


@rule("FastBertNormalize")
def normalize(call: Call, text: Value, model: Value) -> Results:
    """A string for each string, and where each of its bytes was."""
    rows = strings(call, text)
    place, splits = _tokens(call, text, model)
    return [entries_of(rows.space), place, splits]


# --- tokens of code points ---


@rule("UnicodeScriptTokenizeWithOffsets")
def of_code_points(call: Call, values: Value, splits: Value) -> Results:
    """The code points of the tokens, their splits, two offsets for each token, and the tokens' splits."""
    whole = splits_of(call, splits)
    check_entries(call, values, whole.entries)
    points, tokens = call.symbols.new_space(), call.symbols.new_space()
    offset = entries_of(tokens)
    return [entries_of(points), Splits(points, tokens), offset, offset, Splits(tokens, whole.of)]


# --- texts of tokens ---


@rule("SentencepieceDetokenizeOp TFText>FastSentencepieceDetokenize")
def text_of_pieces(call: Call, model: Value, values: Value, splits: Value, *options: Value) -> Results:
    call.check_uniform("model or option", model, *options)
    return _texts(call, values, splits)


@rule("TFText>FastWordpieceDetokenize")
def text_of_words(call: Call, values: Value, splits: Value, model: Value) -> Results:
    call.uniform(model, "model")
    return _texts(call, values, splits)


def _texts(call: Call, values: Value, splits: Value) -> Rows:
    """A string for each row of tokens."""
    whole = splits_of(call, splits)
    check_entries(call, values, whole.entries)
    return entries_of(whole.of)


@rule("SentencepieceIdToStringOp SentencepieceStringToIdOp")
def piece(call: Call, model: Value, values: Value) -> Results:
    call.uniform(model, "model")
    return call.shaped(values, call.shape(values))


@rule("SentencepieceOp SentencepieceVocabSizeOp")
def of_model(call: Call, *model: Value) -> Results:
    call.check_uniform("model", *model)
    return Uniform(())


# --- rows of tokens ---


@rule("TFText>NgramsStringJoin")
def string_ngrams(call: Call, values: Value, *splits: Value) -> Results:
    """Neighbours within the innermost rows, joined."""
    whole = splits_of(call, *splits)
    check_entries(call, values, whole.entries)
    innermost = splits[-1]
    if call.number("axis") != -1 or not isinstance(innermost, Splits):
        raise call.unknown("it joins strings of several rows")
    space = call.symbols.new_space()
    return [entries_of(space), *splits[:-1], Splits(space, innermost.of)]


@rule("TFText>RoundRobinTrim TFText>RoundRobinGenerateMasks")
def trim(call: Call, longest: Value, *segments: Value) -> Results:
    """As many tokens of each segment of a row as fit, one segment after the other; or whether a token is kept."""
    call.uniform(longest, "number of tokens")
    count = call.number("N")
    values, splits = segments[:count], segments[count:]
    wholes = [splits_of(call, each) for each in splits]
    if len({whole.of for whole in wholes}) > 1:
        raise call.unknown("its segments are not of the same rows")
    rows = [check_entries(call, each, whole.entries) for each, whole in zip(values, wholes, strict=True)]
    if call.node.op == "TFText>RoundRobinGenerateMasks":
        return rows
    kept = [call.symbols.new_space() for _ in wholes]
    return [*map(entries_of, kept), *[Splits(space, whole.of) for space, whole in zip(kept, wholes, strict=True)]]
