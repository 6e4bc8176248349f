"""The goals of pipelines, and what was measured of each in the rounds of a part. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.support.goals import Goal, goals_table, of_script, outcomes, script

#: By figure, what was measured in each round.
Figures = dict[str, list[float]]

_NAME = "pipelines"


def _goal(key: str, what: str, *, least: float | None = None, most: float | None = None, unit: str = "x") -> Goal:
    return Goal(what, least, most, script(_NAME, key), unit)


GOALS = (
    _goal("to_node_calls", "trees: trees/s / a node at a time, each a call of its own", least=25),
    _goal(
        "to_level_calls",
        "trees: trees/s / the levels of a request through the same server, each a call of its own",
        least=5,
    ),
    _goal("python_percent", "trees: Python's share of the time", most=30, unit=" %"),
    _goal("one_caller_ms", "trees: one caller's p50", most=1.2, unit=" ms"),
    _goal("tree_to_loop_equal", "trees of 22 leaves: trees/s / whole trees by tf.while_loop", least=1.2),
    _goal("tree_to_loop_mixed", "trees, some large: trees/s / whole trees by tf.while_loop", least=1.8),
    _goal("sentence_to_loop_equal", "the same, leaves by a product of their own", least=1.2),
    _goal("sentence_to_loop_mixed", "the same, some large", least=1.8),
    _goal("images_mixed", "images of mixed sizes: images/s / both steps in one SavedModel", least=3),
    _goal("images_equal", "images of one size: images/s / both steps in one SavedModel", least=0.85),
    _goal("step_1_us", "a step above a plain request, in a pipeline of 1", most=5, unit=" us"),
    _goal("step_2_us", "a step above a plain request, in a pipeline of 2", most=5, unit=" us"),
    _goal("step_4_us", "a step above a plain request, in a pipeline of 4", most=5, unit=" us"),
    _goal("cascade_images", "cascade of image nets: rows/s / as the costs of its calls predict", least=0.9),
    _goal("cascade_dense", "the same of dense layers, of which a row takes a tenth", least=0.9),
    _goal("swaps_failed", "requests that failed while versions were swapped, and at SIGTERM", most=0, unit=""),
    _goal("swaps_not_done", "swaps that were not done, or an exit code that is not 0", most=0, unit=""),
    _goal("furthest", "answers: furthest from those computed otherwise", most=1e-5, unit=""),
)


def table(figures: Mapping[str, Sequence[float]]) -> list[str]:
    """Lines of Markdown: the goals of which something was measured."""
    return goals_table(of_script(_NAME, figures), GOALS, measured_only=True)


def missed(figures: Mapping[str, Sequence[float]]) -> bool:
    """Whether a goal of which something was measured was not reached."""
    return any(outcome.met is False for outcome in outcomes(of_script(_NAME, figures), GOALS))
