"""Strings that match a regular expression of a graph.

Understood are literals, escapes, classes, groups, alternatives and repetitions. Each string is checked by matching it,
so that a pattern which is not understood gives no string, and no wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

_DIGITS = "0123456789"
_WORDS = _DIGITS + "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
_ESCAPED = {"d": _DIGITS, "w": _WORDS, "s": " ", "t": "\t", "n": "\n", "D": "abc", "W": "-", "S": "abc1"}

#: A repetition without an end repeats up to this many times more than it must. Chosen.
_MORE = 3

#: The longest pattern that is read, and the longest string. Chosen.
_LONGEST = 1024


class _NotUnderstood(Exception):
    """The pattern has an element that is not read here."""


def matching_strings(patterns: Sequence[str], count: int, random: np.random.Generator) -> list[bytes]:
    """Up to `count` different strings that match all patterns, by the first one."""
    found: dict[str, None] = {}
    for _ in range(4 * count if patterns and len(patterns[0]) <= _LONGEST else 0):
        try:
            text = _Maker(patterns[0], random).make()
        except (_NotUnderstood, IndexError, ValueError):
            break
        if len(text) <= _LONGEST and matches_all(text.encode(), patterns):
            found[text] = None
        if len(found) == count:
            break
    return [text.encode() for text in found]


def matches_all(text: bytes, patterns: Sequence[str]) -> bool:
    try:
        return all(re.fullmatch(pattern.encode(), text) for pattern in patterns)
    except (re.error, RecursionError, OverflowError):
        return True  # another dialect


class _Maker:
    """A reader of a pattern, from left to right, that makes a matching string meanwhile."""

    def __init__(self, pattern: str, random: np.random.Generator) -> None:
        self._left = pattern
        self._random = random

    def make(self) -> str:
        text = self._alternatives()
        if self._left:
            raise _NotUnderstood
        return text

    def _alternatives(self) -> str:
        found = [self._sequence()]
        while self._left.startswith("|"):
            self._left = self._left[1:]
            found.append(self._sequence())
        return found[self._random.integers(len(found))]

    def _sequence(self) -> str:
        text = ""
        while self._left and self._left[0] not in "|)":
            text += self._repeated()
            if len(text) > _LONGEST:
                raise _NotUnderstood
        return text

    def _repeated(self) -> str:
        before = self._left
        self._item()
        least, most = self._repetition()
        after = self._left
        made = ""
        for _ in range(self._random.integers(least, min(most, least + _MORE, _LONGEST), endpoint=True)):
            self._left = before
            made += self._item()
        self._left = after
        return made

    def _repetition(self) -> tuple[int, int]:
        found = re.match(r"(\*|\+|\?|\{(\d+)(,(\d*))?\})\??", self._left)
        if found is None:
            return 1, 1
        self._left = self._left[found.end() :]
        if found[2] is None:
            return {"*": (0, _MORE), "+": (1, 1 + _MORE), "?": (0, 1)}[found[1]]
        least = int(found[2])
        return least, least if found[3] is None else int(found[4] or least + _MORE)

    def _item(self) -> str:
        first, self._left = self._left[0], self._left[1:]
        if first == "(":
            self._left = re.sub(r"^\?(:|P?<\w+>)", "", self._left)
            text = self._alternatives()
            if not self._left.startswith(")") or text.startswith("?"):
                raise _NotUnderstood
            self._left = self._left[1:]
            return text
        if first == "[":
            return self._one_of(self._class())
        if first == "\\":
            escaped, self._left = self._left[0], self._left[1:]
            return self._one_of(_ESCAPED.get(escaped, escaped))
        if first in "^$":
            return ""
        if first in "*+?{":
            raise _NotUnderstood
        return self._one_of(_WORDS) if first == "." else first

    def _class(self) -> str:
        found = re.match(r"(\^?)(\]?(?:\\.|[^\]\\])*)\]", self._left)
        if found is None or found[2].startswith("[:"):
            raise _NotUnderstood
        self._left = self._left[found.end() :]
        pieces = re.findall(r"(\\.|[^\\])(?:-(\\.|[^\\]))?", found[2])
        characters = ""
        for one, other in pieces:
            first = _ESCAPED.get(one[1:], one[1:]) if one.startswith("\\") else one
            characters += "".join(map(chr, range(ord(one[-1]), ord(other[-1]) + 1))) if other else first
        if found[1]:
            return "".join(each for each in _WORDS + " -." if each not in characters)
        return characters

    def _one_of(self, characters: str) -> str:
        return characters[self._random.integers(len(characters))]
