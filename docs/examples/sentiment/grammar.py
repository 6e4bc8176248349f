"""Sentences about films with their trees. The polarity of each phrase follows from those of its two parts.

What the rules need is order and structure: a negation turns what stands below it, after "but" counts more than before
it, "although" the other way round, and "too" makes of any quality a fault.
"""

from __future__ import annotations

from random import Random

from docs.examples.sentiment.trees import Tree, parse

GOOD = {"good": 0.6, "great": 0.8, "brilliant": 0.9, "funny": 0.6, "clever": 0.6, "moving": 0.7, "fresh": 0.5}
GOOD |= {"charming": 0.7, "gripping": 0.8, "elegant": 0.6, "warm": 0.5, "original": 0.6}
BAD = {"bad": -0.6, "awful": -0.9, "dull": -0.6, "boring": -0.7, "slow": -0.5, "silly": -0.5, "clumsy": -0.6}
BAD |= {"flat": -0.5, "tedious": -0.7, "loud": -0.5, "messy": -0.6, "predictable": -0.5}
ADJECTIVES = GOOD | BAD
SUBJECTS = ("film", "plot", "story", "acting", "cast", "ending", "music", "script")
LIKING = {"like": 0.6, "love": 0.9, "enjoy": 0.7, "admire": 0.7, "hate": -0.9, "regret": -0.6, "forget": -0.4}
THINGS = {"charm": 0.6, "wit": 0.6, "heart": 0.6, "ideas": 0.5, "noise": -0.5, "holes": -0.5, "clichés": -0.6}
DEGREES = {"very": 1.3, "really": 1.2, "extremely": 1.5, "rather": 0.8, "fairly": 0.7}

#: A phrase nearer to 0 is neither.
CLEAR = 0.15


def _join(left: Tree, right: Tree, polarity: float) -> Tree:
    return Tree("", (left, right), max(-1.0, min(1.0, polarity)))


def _before(words: str, tree: Tree, polarity: float) -> Tree:
    """`((far from) good)`: the words are a phrase of their own, which is neither good nor bad."""
    return _join(parse(words), tree, polarity)


class Grammar:
    """Random sentences; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def sentence(self) -> Tree:
        """A sentence whose polarity is clear."""
        while True:
            tree = self._statement(depth=2)
            if abs(tree.polarity) >= CLEAR:
                return tree

    def _statement(self, depth: int) -> Tree:
        kind = self._random.random() if depth else 1.0
        if kind < 0.35:
            return self._contrast(self._statement(depth - 1), self._statement(depth - 1))
        if kind < 0.45:
            inner = self._statement(depth - 1)
            return _before(self._random.choice(["nobody says", "nobody thinks"]), inner, -0.8 * inner.polarity)
        return self._random.choice([self._description, self._feeling, self._content])()

    def _contrast(self, first: Tree, second: Tree) -> Tree:
        word = self._random.choice(["and", "but", "although"])
        weights = {"and": (0.8, 0.8), "but": (0.3, 1.0), "although": (1.0, 0.3)}[word]
        polarity = weights[0] * first.polarity + weights[1] * second.polarity
        return _join(first, _join(Tree(word), second, 0.0), polarity)

    def _description(self) -> Tree:
        """The film is not very good."""
        quality = self._quality(2)
        return _join(self._subject(), _join(Tree("is"), quality, quality.polarity), quality.polarity)

    def _feeling(self) -> Tree:
        """I did not enjoy the film."""
        verb, strength = self._random.choice(list(LIKING.items()))
        phrase = _join(Tree(verb, polarity=strength), self._subject(), strength)
        kind = self._random.randrange(4)
        if kind == 0:
            phrase = _before("did not", phrase, -0.7 * strength)
        elif kind == 1:
            phrase = _before("failed to", phrase, -0.7 * strength)
        elif kind == 2:
            phrase = _before(self._random.choice(["really", "do"]), phrase, 1.2 * strength)
        return _join(Tree(self._random.choice(["I", "we"])), phrase, phrase.polarity)

    def _content(self) -> Tree:
        """The script is free of clichés."""
        word, strength = self._random.choice(list(THINGS.items()))
        thing = Tree(word, polarity=strength)
        way = self._random.choice(["has", "lacks", "is full of", "is free of", "is never short of"])
        phrase = _before(way, thing, -strength if way in {"lacks", "is free of"} else strength)
        return _join(self._subject(), phrase, phrase.polarity)

    def _subject(self) -> Tree:
        return _join(Tree("the"), Tree(self._random.choice(SUBJECTS)), 0.0)

    def _quality(self, depth: int) -> Tree:
        kind = self._random.random() if depth else 1.0
        if kind < 0.25:
            return self._negated(self._quality(depth - 1))
        if kind < 0.5:
            return self._contrast(self._quality(depth - 1), self._quality(depth - 1))
        word, strength = self._random.choice(list(ADJECTIVES.items()))
        quality = Tree(word, polarity=strength)
        if kind < 0.65:
            degree, factor = self._random.choice(list(DEGREES.items()))
            return _join(Tree(degree), quality, factor * strength)
        if kind < 0.75:
            return _before(self._random.choice(["too", "far too"]), quality, -0.6)
        return quality

    def _negated(self, quality: Tree) -> Tree:
        words = self._random.choice(["not", "never", "hardly", "anything but", "far from"])
        return _before(words, quality, -0.8 * quality.polarity)
