"""The text forms of settings with several values, in flags and in the environment."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BeforeValidator, Field, PositiveInt
from pydantic_settings import NoDecode

from app.core.batch_sizes import LEAST_WEIGHT, MOST_WEIGHT

T = TypeVar("T")


def _numbers(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(f"[{value.strip().removeprefix('[').removesuffix(']')}]")
    except json.JSONDecodeError:
        raise ValueError("whole numbers such as 1,2,4") from None


def _names(value: object) -> object:
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


def _number_or_text(text: str) -> int | float | str:
    for read in (int, float):
        with suppress(ValueError):
            return read(text)
    return text


def _pairs(
    value: object,
    example: str = "values such as tokens=1,bert/mask=0",
    read: Callable[[str], int | float | str] = _number_or_text,
) -> object:
    if not isinstance(value, str):
        return value
    with suppress(json.JSONDecodeError):
        return json.loads(value)
    pairs = [pair.split("=", 1) for pair in value.split(",") if pair.strip()]
    if any(len(pair) < 2 or not pair[0].strip() for pair in pairs):
        raise ValueError(f"names and {example}")
    return {name.strip(): read(text) for name, text in pairs}


_links = partial(_pairs, example="values such as mask=tokens,bert/length=ids", read=str.strip)
_rows = partial(_pairs, example="one of probe, assume and deny, such as bert=assume,gan/train=deny", read=str.strip)
_weights = partial(_pairs, example="weights such as bert=3,resnet=1")

#: '1,2,4' or '[1,2,4]'.
Sizes = Annotated[list[PositiveInt], NoDecode, BeforeValidator(_numbers)]

#: 'frozen,xla'.
Names = Annotated[list[T], NoDecode, BeforeValidator(_names)]

#: '/models,/data/models'.
Folders = Annotated[list[Path], NoDecode, BeforeValidator(_names)]

#: 'tokens=1,words=?' or '{"tokens": 1}'.
Values = Annotated[dict[str, int | float | str], NoDecode, BeforeValidator(_pairs)]

#: 'mask=tokens,bert/length=ids' or '{"mask": "tokens"}'.
Links = Annotated[dict[str, str], NoDecode, BeforeValidator(_links)]

#: 'bert=assume,gan/train=deny' or '{"bert": "assume"}'.
Rows = Annotated[dict[str, Literal["probe", "assume", "deny"]], NoDecode, BeforeValidator(_rows)]

#: 'bert=3,resnet=1' or '{"bert": 3}'.
Weight = Annotated[float, Field(ge=LEAST_WEIGHT, le=MOST_WEIGHT, allow_inf_nan=False)]
Weights = Annotated[dict[str, Weight], NoDecode, BeforeValidator(_weights)]
