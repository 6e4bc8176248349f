"""Binary trees of words: their text, `((not good) but clever)`, and their arrays, as requests have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple


class Tree(NamedTuple):
    """A word, or two parts.

    polarity: -1 (negative) to 1; what has none, such as "the film", is 0.
    """

    word: str
    parts: tuple[Tree, ...] = ()
    polarity: float = 0.0

    def __str__(self) -> str:
        return f"({' '.join(map(str, self.parts))})" if self.parts else self.word

    def nodes(self) -> Iterator[Tree]:
        """Itself and all below it, parts before what they are part of."""
        for part in self.parts:
            yield from part.nodes()
        yield self

    def words(self) -> list[str]:
        return [node.word for node in self.nodes() if not node.parts]


def parse(text: str) -> Tree:
    """Reads brackets. More than two in one bracket are joined from the right: `(a b c)` is `(a (b c))`.

    Raises ValueError: the brackets do not match, or one is empty.
    """
    open_brackets: list[list[Tree]] = [[]]
    for token in text.replace("(", " ( ").replace(")", " ) ").split():
        if token == "(":
            open_brackets.append([])
        elif token == ")":
            tree = _joined(open_brackets.pop())
            if not open_brackets:
                raise ValueError("a bracket is closed that was not opened")
            open_brackets[-1].append(tree)
        else:
            open_brackets[-1].append(Tree(token))
    if len(open_brackets) > 1:
        raise ValueError("a bracket is not closed")
    return _joined(open_brackets[0])


def _joined(parts: Sequence[Tree]) -> Tree:
    if not parts:
        raise ValueError("expected words between the brackets")
    *before, tree = parts
    for part in reversed(before):
        tree = Tree("", (part, tree))
    return tree


class Forest(NamedTuple):
    """Trees as a request has them.

    Attributes:
        words: of all leaves, which are the nodes 0, 1, ...
        children: [inner][2] of the inner nodes, which follow: the numbers of their two parts. A part comes before what
            it is part of, so that the roots stand in the order of the trees.
        nodes: by number; leaves first.
    """

    words: list[str]
    children: list[list[int]]
    nodes: list[Tree]

    @property
    def request(self) -> dict[str, Any]:
        """The JSON of a request."""
        return {"inputs": {"words": self.words, "children": self.children}}


def forest_of(trees: Sequence[Tree]) -> Forest:
    """Raises ValueError: a tree is a word alone; its root would come before those of the others."""
    if not all(tree.parts for tree in trees):
        raise ValueError("expected trees of two words or more")
    nodes = [node for tree in trees for node in tree.nodes()]
    leaves = [node for node in nodes if not node.parts]
    children: list[list[int]] = []
    words: list[str] = []
    open_nodes: list[int] = []  # the parts of what comes
    for node in nodes:
        if node.parts:
            right, left = open_nodes.pop(), open_nodes.pop()
            open_nodes.append(len(leaves) + len(children))
            children.append([left, right])
        else:
            open_nodes.append(len(words))
            words.append(node.word)
    return Forest(words, children, leaves + [node for node in nodes if node.parts])


def levels_of(forest: Forest) -> list[int]:
    """Of each inner node, the calls that come before its own: 0 where both parts are words."""
    leaves = len(forest.words)
    levels: list[int] = []
    for pair in forest.children:
        levels.append(1 + max(levels[child - leaves] if child >= leaves else -1 for child in pair))
    return levels
