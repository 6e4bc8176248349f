"""Strings that match a regular expression of a graph.

_StringMaker understands literals, escapes, classes, groups, alternatives and repetitions. RegexFullMatch, the operation
of graphs, checks each string that it makes (in linear time): a string that does not match is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

_DIGITS = "0123456789"
_WORD_CHARACTERS = _DIGITS + "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"

#: The characters that an escape stands for, by the letter after the backslash; a few of them for \D, \W and \S.
_ESCAPED = {"d": _DIGITS, "w": _WORD_CHARACTERS, "s": " ", "t": "\t", "n": "\n", "D": "abc", "W": "-", "S": "abc1"}

#: An item is repeated at most this many times more than the pattern requires. Chosen.
_EXTRA_COPIES = 3

#: The most characters of a pattern, and of a string. Chosen.
_MOST_CHARACTERS = 1024

#: The most items read for a string. A group is read to find its end and again for each copy: n nested groups take some
#: 2**n reads. Chosen: some 10 ms.
_MOST_ITEMS = 10_000


class _NotUnderstood(Exception):
    """The pattern has an element that the maker does not understand, or takes too many items or characters."""


def matching_strings(patterns: Sequence[str], count: int, random: np.random.Generator) -> list[bytes]:
    """Up to `count` different strings that match all patterns. They are made from the first pattern."""
    found: dict[str, None] = {}
    # Four tries for each string that is wanted (chosen): some are equal, some do not match.
    for _ in range(4 * count if patterns and len(patterns[0]) <= _MOST_CHARACTERS else 0):
        try:
            text = _StringMaker(patterns[0], random).make()
        except (_NotUnderstood, IndexError, ValueError):
            break
        if len(text) <= _MOST_CHARACTERS and matches_all(text.encode(), patterns):
            found[text] = None
        if len(found) == count:
            break
    return [text.encode() for text in found]


def matches_all(text: bytes, patterns: Sequence[str]) -> bool:
    """Whether the text matches all patterns, as a graph's RegexFullMatch does. False if one is not valid."""
    try:
        return all(tf.strings.regex_full_match(text, pattern).numpy() for pattern in patterns)
    except tf.errors.InvalidArgumentError:
        return False


class _StringMaker:
    """A parser that reads a pattern from left to right and makes a matching string on the way."""

    def __init__(self, pattern: str, random: np.random.Generator) -> None:
        self._left = pattern
        self._random = random
        self._items = 0

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
            if len(text) > _MOST_CHARACTERS:
                raise _NotUnderstood
        return text

    def _repeated(self) -> str:
        """A random number of copies of the next item, at most _EXTRA_COPIES above the least."""
        item_start = self._left
        self._item()  # read to find its end, then once for each copy
        least, most = self._repetition()
        item_end = self._left
        made = ""
        for _ in range(self._random.integers(least, min(most, least + _EXTRA_COPIES, _MOST_CHARACTERS), endpoint=True)):
            self._left = item_start
            made += self._item()
        self._left = item_end
        return made

    def _repetition(self) -> tuple[int, int]:
        """The least and the most copies to make of the item that was just read; 1 and 1 without a repetition."""
        found = re.match(r"(\*|\+|\?|\{(\d+)(,(\d*))?\})\??", self._left)
        if found is None:
            return 1, 1
        self._left = self._left[found.end() :]
        if found[2] is None:
            return {"*": (0, _EXTRA_COPIES), "+": (1, 1 + _EXTRA_COPIES), "?": (0, 1)}[found[1]]
        least = int(found[2])
        return least, least if found[3] is None else int(found[4] or least + _EXTRA_COPIES)

    def _item(self) -> str:
        """A string for the next group, class, escape, anchor or character."""
        self._items += 1
        if self._items > _MOST_ITEMS:
            raise _NotUnderstood
        first, self._left = self._left[0], self._left[1:]
        if first == "(":  # also (?:...), (?<name>...) and (?P<name>...)
            self._left = re.sub(r"^\?(:|P?<\w+>)", "", self._left)
            text = self._alternatives()
            if not self._left.startswith(")"):
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
        return self._one_of(_WORD_CHARACTERS) if first == "." else first

    def _class(self) -> str:
        """The characters of a class after its `[`; of a negated one the word characters, space, - and dot not in it."""
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
            return "".join(character for character in _WORD_CHARACTERS + " -." if character not in characters)
        return characters

    def _one_of(self, characters: str) -> str:
        return characters[self._random.integers(len(characters))]
