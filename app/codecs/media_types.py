"""Content-Type, Accept and Accept-Encoding: the format of a body, and the formats that a reply may have.

Source: RFC 9110, sections 8.3 (Content-Type), 12.4.2 (quality values) and 12.5.1 (Accept).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def media_type(content_type: bytes) -> str:
    """The type without parameters, in lower case: 'application/json' for b'Application/JSON; charset=utf-8'."""
    return content_type.decode("latin-1").partition(";")[0].strip().lower()


def choose(accept: bytes, offered: Sequence[str]) -> str | None:
    """The media type of `offered` with the highest quality value; of equals the first. None if all are 0."""
    accepted = quality_values(accept)
    best = max(offered, key=lambda each: _quality(each, accepted))
    return best if _quality(best, accepted) > 0 else None


def quality_values(header: bytes) -> dict[str, float]:
    """The quality value of each element of an Accept or Accept-Encoding header, names in lower case.

    It is 1 for an element without `q`, and 0 where `q` is not a number.
    """
    values: dict[str, float] = {}
    for element in header.decode("latin-1").lower().split(","):
        name, *parameters = (part.strip() for part in element.split(";"))
        values[name] = next((_number(each[2:]) for each in parameters if each.startswith("q=")), 1.0)
    return values


def _quality(media: str, accepted: Mapping[str, float]) -> float:
    """The quality value of a type, by the most specific range that covers it. Some clients send `*` for `*/*`."""
    main_type = media.partition("/")[0] + "/*"
    return next((accepted[each] for each in (media, main_type, "*/*", "*") if each in accepted), 0.0)


def _number(quality: str) -> float:
    try:
        return float(quality)
    except ValueError:
        return 0.0
