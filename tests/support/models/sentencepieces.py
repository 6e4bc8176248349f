"""A small model of SentencePiece, trained when it is first asked for."""

from __future__ import annotations

import io
from functools import cache

import sentencepiece

_SENTENCES = (
    "the quick brown fox jumps over the lazy dog",
    "big dogs eat small pieces of a sentence",
    "a model makes pieces of words, and words of pieces",
    "12 apples, 5 pears!",
)


@cache
def piece_model() -> bytes:
    """A unigram model of 48 pieces, with SentencePiece's usual normalisation."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(_SENTENCES * 5), model_writer=model, vocab_size=48, minloglevel=2, num_threads=1
    )
    return model.getvalue()
