"""Trains a binary TreeLSTM on sentences of the grammar: `python -m docs.examples.sentiment.train`.

K. S. Tai, R. Socher, C. D. Manning: Improved semantic representations from tree-structured long short-term memory
networks, ACL 2015, section 3.2.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from docs.examples.sentiment.grammar import CLEAR, Grammar
from docs.examples.sentiment.trees import Forest, Tree, forest_of, levels_of, parse
from models.training import export, fit, glorot, make_repeatable, shuffled_batches, write_samples, zeros

HERE = Path(__file__).parent
MODELS = HERE / "models"

SEED = 0
EPOCHS = 10
BATCH = 32
TRAINED, HELD = 4000, 1000
LEAST_ACCURACY = 0.95
UNKNOWN_SHARE = 0.03  # of the words while training, so that words that it does not know mean nothing
WIDTH = 32
CLASSES = 2  # negative, positive
GATES = 5  # input, output, update; forget left, forget right

#: What trees.json asks, each with its class. The order of words counts, and so does the structure: the last two of the
#: first request have the same words in the same order.
ASKED = [
    [
        ("((the film) (is (good (but slow))))", 0),
        ("((the film) (is (slow (but good))))", 1),
        ("((the film) (is (((far from) awful) (but slow))))", 0),
        ("((the film) (is ((far from) (awful (but slow)))))", 1),
    ],
    [("((nobody says) ((the plot) ((is (free of)) clichés)))", 0)],
    [("(we ((did not) (enjoy (the acting))))", 0), ("((the script) (is ((anything but) (too predictable))))", 1)],
]
ASKED_HELD = 16  # of the held-out sentences, in one more request

Variables = dict[str, tf.Variable]
State = tuple[tf.Tensor, tf.Tensor]
Batch = tuple[np.ndarray, ...]


# --- the models ---


def make_variables(words: int) -> Variables:
    bias = np.zeros(GATES * WIDTH, np.float32)
    bias[3 * WIDTH :] = 1.0  # at first nothing is forgotten
    return {
        "embedding": glorot(words, 3 * WIDTH),
        "cell_kernel": glorot(2 * WIDTH, GATES * WIDTH),
        "cell_bias": tf.Variable(bias),
        "head_kernel": glorot(WIDTH, CLASSES),
        "head_bias": zeros(CLASSES),
    }


def embed(v: Variables, ids: tf.Tensor) -> State:
    """[n] -> h and c of leaves, [n, WIDTH]. The gates of a leaf depend on its word alone, so they are what it has."""
    gates = tf.gather(v["embedding"], ids)
    i, o, u = tf.split(gates, 3, axis=1)
    c = tf.sigmoid(i) * tf.tanh(u)
    return tf.sigmoid(o) * tf.tanh(c), c


def cell(v: Variables, left: State, right: State) -> State:
    """The states of two parts -> that of the whole; each [n, WIDTH]."""
    gates = tf.concat([left[0], right[0]], axis=1) @ v["cell_kernel"] + v["cell_bias"]
    i, o, u, forget_left, forget_right = tf.split(gates, GATES, axis=1)
    c = tf.sigmoid(i) * tf.tanh(u) + tf.sigmoid(forget_left) * left[1] + tf.sigmoid(forget_right) * right[1]
    return tf.sigmoid(o) * tf.tanh(c), c


def head(v: Variables, h: tf.Tensor) -> tf.Tensor:
    """[n, WIDTH] -> [n, CLASSES]."""
    return h @ v["head_kernel"] + v["head_bias"]


def save(v: Variables, vocabulary: Sequence[str]) -> None:
    """Each model by itself; `embed` takes words, of which all that it does not know are number 0."""
    numbers = tf.range(1, len(vocabulary) + 1)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(list(vocabulary), numbers), 0)

    def embed_words(word: tf.Tensor) -> dict[str, tf.Tensor]:
        h, c = embed(v, table.lookup(tf.strings.lower(word, encoding="utf-8")))
        return {"h": h, "c": c}

    def join(left_h: tf.Tensor, left_c: tf.Tensor, right_h: tf.Tensor, right_c: tf.Tensor) -> dict[str, tf.Tensor]:
        h, c = cell(v, (left_h, left_c), (right_h, right_c))
        return {"h": h, "c": c}

    def score(h: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"probabilities": tf.nn.softmax(head(v, h))}

    def spec(name: str) -> tf.TensorSpec:
        return tf.TensorSpec([None, WIDTH], tf.float32, name=name)

    def put(name: str, function: tf.types.experimental.PolymorphicFunction, **owned: object) -> None:
        export(owned, {"serving_default": function}, MODELS / name / "1")

    word = tf.TensorSpec([None], tf.string, name="word")
    states = [spec(name) for name in ("left_h", "left_c", "right_h", "right_c")]
    put("embed", tf.function(embed_words, [word]), embedding=v["embedding"], table=table)
    put("cell", tf.function(join, states), kernel=v["cell_kernel"], bias=v["cell_bias"])
    put("head", tf.function(score, [spec("h")]), kernel=v["head_kernel"], bias=v["head_bias"])


# --- training ---


def batch_of(trees: Sequence[Tree], numbers: dict[str, int], levels: int, random: np.random.Generator) -> Batch:
    """Words, children, where each level of children ends, and of each node its class and whether that is clear.

    Inner nodes are numbered by level, so that a level's states can be put behind those before.
    """
    forest = forest_of(trees)
    leaves = len(forest.words)
    level = np.array(levels_of(forest))
    order = np.argsort(level, kind="stable")
    renumbered = np.concatenate([np.arange(leaves), leaves + np.argsort(order)])
    children = renumbered[np.array(forest.children)[order]]

    ids = np.array([numbers[word.lower()] for word in forest.words])
    ids[random.random(leaves) < UNKNOWN_SHARE] = 0
    polarity = np.array([node.polarity for node in forest.nodes])
    polarity = np.concatenate([polarity[:leaves], polarity[leaves:][order]])
    ends = np.cumsum([0, *np.bincount(level, minlength=levels)])
    return ids, children, ends, (polarity > 0).astype(np.int64), (np.abs(polarity) >= CLEAR).astype(np.float32)


def train(trees: Sequence[Tree], vocabulary: Sequence[str]) -> Variables:
    """Every phrase whose polarity is clear teaches, as in the Stanford Sentiment Treebank."""
    v = make_variables(1 + len(vocabulary))
    numbers = {word: 1 + number for number, word in enumerate(vocabulary)}
    levels = 1 + max(max(levels_of(forest_of([tree]))) for tree in trees)

    def loss(ids: tf.Tensor, children: tf.Tensor, ends: tf.Tensor, classes: tf.Tensor, clear: tf.Tensor) -> tf.Tensor:
        h, c = embed(v, ids)
        for level in range(levels):
            left, right = tf.unstack(children[ends[level] : ends[level + 1]], num=2, axis=1)
            own_h, own_c = cell(v, (tf.gather(h, left), tf.gather(c, left)), (tf.gather(h, right), tf.gather(c, right)))
            h, c = tf.concat([h, own_h], axis=0), tf.concat([c, own_c], axis=0)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(classes, head(v, h))
        return tf.reduce_sum(losses * clear) / tf.reduce_sum(clear)

    random = np.random.default_rng(SEED)
    batches = [
        batch_of([trees[row] for row in rows], numbers, levels, random)
        for rows in shuffled_batches(len(trees), BATCH, EPOCHS, random)
    ]
    fit(loss, list(v.values()), batches, peak=1e-2)
    return v


# --- what it answers ---


class Served:
    """The SavedModels, called directly, node by node."""

    def __init__(self) -> None:
        self._loaded = {name: tf.saved_model.load(str(MODELS / name / "1")) for name in ("embed", "cell", "head")}

    def _call(self, name: str, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs: dict[str, tf.Tensor] = self._loaded[name].signatures["serving_default"](**inputs)
        return outputs

    def answer(self, forest: Forest) -> dict[str, np.ndarray]:
        """Of each root, and of each inner node, [negative, positive]."""
        states = [self._call("embed", word=tf.constant([word])) for word in forest.words]
        for left, right in forest.children:
            below = {"left_h": states[left]["h"], "left_c": states[left]["c"]}
            below |= {"right_h": states[right]["h"], "right_c": states[right]["c"]}
            states.append(self._call("cell", **below))
        found = np.concatenate([self._call("head", h=state["h"])["probabilities"].numpy() for state in states])
        inner = range(len(forest.words), len(states))
        roots = sorted({*inner} - {child for pair in forest.children for child in pair})
        return {"probabilities": found[roots], "phrases": found[inner]}


def sentences() -> Iterator[Tree]:
    """Without end, each but once."""
    grammar, seen = Grammar(SEED), set[str]()
    while True:
        tree = grammar.sentence()
        text = " ".join(tree.words())
        if text not in seen:
            seen.add(text)
            yield tree


def bag_of_words(trees: Sequence[Tree], held: Sequence[Tree], words: int) -> float:
    """The accuracy of a logistic regression of counts: of words, or of up to so many words in a row."""
    model = make_pipeline(
        CountVectorizer(ngram_range=(1, words), token_pattern=r"\S+"), LogisticRegression(max_iter=1000)
    )
    model.fit([" ".join(tree.words()) for tree in trees], list(map(class_of, trees)))
    return float(model.score([" ".join(tree.words()) for tree in held], list(map(class_of, held))))


def class_of(tree: Tree) -> int:
    return int(tree.polarity > 0)


def samples(served: Served, held: Sequence[Tree]) -> Iterator[dict[str, Any]]:
    """Requests with the classes of their trees, and what comes back."""
    asked = [[(parse(text), wanted) for text, wanted in trees] for trees in ASKED]
    asked.append([(tree, class_of(tree)) for tree in held[:ASKED_HELD]])
    for trees in asked:
        forest = forest_of([tree for tree, _ in trees])
        answer = {name: np.round(array.astype(float), 4).tolist() for name, array in served.answer(forest).items()}
        yield {
            "trees": [str(tree) for tree, _ in trees],
            "labels": [label for _, label in trees],
            "request": forest.request,
            "answer": {"outputs": answer},
        }


def main() -> None:
    make_repeatable(SEED)
    source = sentences()
    trees, held = [next(source) for _ in range(TRAINED)], [next(source) for _ in range(HELD)]
    vocabulary = sorted({word.lower() for tree in trees for word in tree.words()})
    save(train(trees, vocabulary), vocabulary)

    served = Served()
    labels = np.array([class_of(tree) for tree in held])
    answers = [served.answer(forest_of([tree]))["probabilities"][0].argmax() for tree in held]
    facts = {
        "held_out_accuracy": round(float(np.mean(answers == labels)), 4),
        "held_out_count": len(held),
        "majority_baseline": round(float(np.bincount(labels).max() / len(labels)), 4),
        "bag_of_words": round(bag_of_words(trees, held, 1), 4),
        "bag_of_three_words_in_a_row": round(bag_of_words(trees, held, 3), 4),
    }
    print(facts)
    if facts["held_out_accuracy"] < LEAST_ACCURACY:
        sys.exit(f"below {LEAST_ACCURACY:.0%}")
    write_samples(HERE / "trees.json", facts, samples(served, held))


if __name__ == "__main__":
    main()
