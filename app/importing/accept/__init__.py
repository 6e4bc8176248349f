"""What `--accept` puts before a model, so that it takes what people send: encoded images, or text.

front.py joins it to the source; jpeg.py decodes and resizes images, pixels.py has their ranges; text.py takes the
model's own vectorisation, word_pieces.py that of BERT's family. All of it runs in the child process of an import; only
app/importing imports it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app.importing.accept.front import Front, behind, default_endpoint, exported
from app.importing.accept.jpeg import image_front
from app.importing.accept.text import takes_text, text_front
from app.importing.accept.word_pieces import has_word_pieces, word_piece_front
from app.importing.order import ImportOrder
from app.importing.source import Endpoint, Source


def accepting(source: Source, order: ImportOrder) -> Source:
    """The source with what `order.accept` names before its default endpoint. Raises CannotImport."""
    if not order.accept:
        return source
    if order.accept == "text" and (strings := takes_text(default_endpoint(source))):
        return replace(source, notes=[*source.notes, f"input {strings[0]!r} takes text already"])
    source = exported(source)
    endpoint = default_endpoint(source)
    return behind(_front(source, endpoint, order), source, endpoint)


def _front(source: Source, endpoint: Endpoint, order: ImportOrder) -> Front:
    if order.accept == "jpeg":
        return image_front(endpoint, order.pixels)
    if source.vectorise is None and has_word_pieces(Path(order.source)):
        return word_piece_front(Path(order.source), endpoint)
    return text_front(source, endpoint)
