"""Text for models of BERT's family: the tokens of Hugging Face's own tokenizer, which made the expected ones here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from app.core.inference import string_array
from app.importing.accept.word_pieces import word_piece_front
from app.importing.order import CannotImport
from tests.importing.accept.sources import identity, imported, spec

_VOCABULARY = "[PAD] [UNK] [CLS] [SEP] the film large groß große ##ß cafe caf ##é is good ##s 价 格 ! ' don t , οδοσ"
_WORDS = _VOCABULARY.split()

#: By text, the tokens between [CLS] and [SEP] of transformers 4.57's BertTokenizerFast, lower and as it is.
_TOKENS = {
    "The film's GOOD, films!": ("the film ' [UNK] good , film ##s !", "[UNK] film ' [UNK] [UNK] , film ##s !"),
    "Große groß": ("große groß", "[UNK] groß"),
    "CAFÉ café caf\u200bé": ("cafe cafe cafe", "[UNK] caf ##é caf ##é"),
    "价格is good": ("价 格 is good", "价 格 is good"),
    "ΟΔΟΣ don't": ("οδοσ don ' t", "[UNK] don ' t"),
    " \t\n": ("", ""),
    "the" + "s" * 98 + "\u00a0the" + "s" * 97: ("[UNK] the" + 97 * " ##s", "[UNK] the" + 97 * " ##s"),
}


def _snapshot(folder: Path, **config: Any) -> Path:
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(_WORDS) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 512}))
    return folder


def _bert(length: int | None = None, *names: str) -> Any:
    names = names or ("input_ids", "attention_mask", "token_type_ids")
    return identity({name: spec(None, length, dtype=tf.int32) for name in names})


@pytest.mark.parametrize("lower", [True, False])
def test_tokens_are_those_of_the_tokenizer(lower: bool, tmp_path: Path) -> None:
    front = word_piece_front(_snapshot(tmp_path / "bert", do_lower_case=lower), _bert().endpoints[0])
    arrays = front.run(string_array([text.encode() for text in _TOKENS]))
    in_graph = tf.function(front.call, input_signature=[front.spec])(tf.constant(list(_TOKENS)))
    assert {name: tensor.numpy().tolist() for name, tensor in in_graph.items()} == {
        name: array.tolist() for name, array in arrays.items()
    }
    found = [
        " ".join(_WORDS[number] for number, here in zip(ids, mask, strict=True) if here)
        for ids, mask in zip(arrays["input_ids"], arrays["attention_mask"], strict=True)
    ]
    assert found == [f"[CLS] {tokens[not lower]} [SEP]".replace("  ", " ") for tokens in _TOKENS.values()]


@pytest.mark.parametrize("length", [6, None])
def test_an_import_takes_text(length: int | None, tmp_path: Path) -> None:
    snapshot = _snapshot(tmp_path / "bert", model_max_length=8)
    source = _bert(length, "input_ids", "attention_mask")
    _, notes = imported(source, tmp_path / "1", accept="text", source=str(snapshot))
    assert f"text becomes attention_mask, input_ids by vocab.txt, at most {length or 8} tokens" in notes[0]
    loaded = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    answer = loaded(text=tf.constant(["the film is good the film is good", "good"]))["input_ids_out"].numpy()
    assert answer.shape == (2, length or 8)
    assert [_WORDS[number] for number in answer[1][:4]] == ["[CLS]", "good", "[SEP]", "[PAD]"]
    assert _WORDS[answer[0][-1]] == "[SEP]"


@pytest.mark.parametrize(
    ("config", "names", "message"),
    [
        (
            {"tokenizer_class": "RobertaTokenizerFast"},
            (),
            "a tokenizer of WordPiece as BERT's is expected; the source has",
        ),
        ({"unk_token": {"content": "<unk>"}}, (), "vocab.txt lacks the token <unk>"),
        ({}, ("input_ids", "decoder_ids"), "the inputs are input_ids, decoder_ids; expected are attention_mask, input"),
    ],
)
def test_another_tokenizer_is_told(
    config: dict[str, Any], names: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    snapshot = _snapshot(tmp_path / "bert", **config)
    with pytest.raises(CannotImport) as raised:
        imported(_bert(None, *names), tmp_path / "1", accept="text", source=str(snapshot))
    assert message in str(raised.value)
