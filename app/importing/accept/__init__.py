"""What `--accept` puts before a model, so that it takes what people send: encoded images, or text.

front.py joins it to the source; jpeg.py decodes and resizes images, pixels.py has their ranges; text.py takes the
model's own vectorisation, word_pieces.py that of BERT's family. All of it runs in the child process of an import; only
app/importing imports it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app.importing.accept.front import behind, default_endpoint
from app.importing.accept.jpeg import image_front
from app.importing.accept.text import takes_text, text_front
from app.importing.accept.word_pieces import has_word_pieces, word_piece_front
from app.importing.order import CannotImport, ImportOrder
from app.importing.source import Source


def accepting(source: Source, order: ImportOrder) -> Source:
    """The source with what `order.accept` names before its default endpoint. Raises CannotImport."""
    if not order.accept:
        if order.pixels:
            raise CannotImport(f"--pixels {order.pixels} needs --accept jpeg")
        return source
    endpoint = default_endpoint(source)
    if order.accept == "jpeg":
        return behind(image_front(endpoint, order.pixels), source, endpoint)
    if order.accept != "text":
        raise CannotImport(f"--accept {order.accept}: expected jpeg or text")
    if order.pixels:
        raise CannotImport(f"--pixels {order.pixels} needs --accept jpeg")
    if strings := takes_text(endpoint):
        return replace(source, notes=[*source.notes, f"input {strings[0]!r} takes text already"])
    if source.vectorise is None and has_word_pieces(Path(order.source)):
        return behind(word_piece_front(Path(order.source), endpoint), source, endpoint)
    return behind(text_front(source, endpoint), source, endpoint)
