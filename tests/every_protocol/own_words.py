"""Words of one family of protocols that no error text of the other family may have: its users do not know them."""

from __future__ import annotations

_TENSORFLOW = ("servable", "serving signature", "signature def", "'instances'")
_OPEN_INFERENCE = ("unknown model", "datatype", "shared memory", "binary_data", "inference-header")


def foreign_words(target: str, text: str, asked: str = "") -> list[str]:
    """Words of the other family in an error text.

    Args:
        target: the path, or '/service/method', that answered with the text.
        asked: the request; an error text may quote its words.
    """
    open_inference = target.lstrip("/").startswith(("v2", "inference."))
    said, quoted = text.lower(), asked.lower()
    foreign = _TENSORFLOW if open_inference else _OPEN_INFERENCE
    return [word for word in foreign if word in said and word not in quoted]
