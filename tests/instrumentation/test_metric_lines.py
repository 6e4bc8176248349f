"""Lines of metrics are written again only where their numbers changed, and are then what a new page would have."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.samples import Exemplar

from app.instrumentation import metric_lines
from app.instrumentation.histogram import BOUNDS, Histogram, Labels
from app.instrumentation.metric_definitions import MetricDefinition
from app.instrumentation.metric_lines import MetricLines, Series, content_type_of
from app.transports.rendered_pages import whole

OPEN = "application/openmetrics-text; version=1.0.0"
REQUESTS = MetricDefinition("asked_total", "counter", ("model",), "Requests.")
ROWS = MetricDefinition("rows", "gauge", ("model",), 'Rows of "m" \\ others.')
SECONDS = MetricDefinition("took_seconds", "histogram", ("model",), "Seconds.")


class World:
    """Three metrics of two models, and one that prometheus_client counts."""

    def __init__(self) -> None:
        self.lines = MetricLines()
        self.others = CollectorRegistry()
        Gauge("build", "What runs.", registry=self.others).set(1)
        self.asked = {("a",): 1.0, ('b"\n',): 2.0}
        self.rows = {("a",): 3}
        self.seconds = {(name,): Histogram(BOUNDS) for name in "ab"}
        self.exemplars: dict[int, Exemplar] = {}

    def shown(self) -> Sequence[Series | None]:
        exemplars: dict[Labels, dict[int, Exemplar]] = {("a",): self.exemplars}
        return [
            Series(REQUESTS, self.asked),
            None,
            Series(ROWS, self.rows),
            Series(SECONDS, self.seconds, exemplars=lambda labels: exemplars.get(labels, {})),
        ]

    def page(self, accepted: str = "") -> str:
        return whole(self.lines.write(content_type_of(accepted), self.shown(), self.others)).decode()

    def new_page(self, accepted: str = "") -> str:
        lines = MetricLines()
        return whole(lines.write(content_type_of(accepted), self.shown(), self.others)).decode()


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, object]]:
    """Metric and labels of what was written, without heads."""
    found: list[tuple[str, object]] = []
    usual = metric_lines._lines

    def lines(encode: object, metric: Series) -> bytes:
        found.extend((metric.definition.name, labels) for labels in metric.values)
        return usual(encode, metric)  # type: ignore[arg-type]  # it is passed on

    monkeypatch.setattr(metric_lines, "_lines", lines)
    return found


@pytest.mark.parametrize("accepted", ["", OPEN])
def test_only_what_has_changed_is_written_again(written: list[tuple[str, object]], accepted: str) -> None:
    world = World()
    first = world.page(accepted)
    assert len(written) == 5
    written.clear()
    assert world.page(accepted) == first
    assert written == []
    world.asked["a",] += 1
    world.seconds["b",].observe(0.2)
    world.exemplars[3] = Exemplar({"trace_id": "t"}, 0.001)
    page = world.page(accepted)
    assert written == [("asked_total", ("a",)), ("took_seconds", ("a",)), ("took_seconds", ("b",))]
    assert page == world.new_page(accepted) != first


def test_the_page_is_what_prometheus_client_writes() -> None:
    assert World().page().splitlines()[:9] == [
        "# HELP build What runs.",
        "# TYPE build gauge",
        "build 1.0",
        "# HELP asked_total Requests.",
        "# TYPE asked_total counter",
        'asked_total{model="a"} 1.0',
        'asked_total{model="b\\"\\n"} 2.0',
        '# HELP rows Rows of "m" \\\\ others.',
        "# TYPE rows gauge",
    ]
    page = World().page(OPEN)
    assert page.endswith("# EOF\n")
    assert page.count("# EOF\n") == 1


@pytest.mark.parametrize("kind", ["text/plain; version=1.0.0", "application/openmetrics-text; version=1.0.0"])
def test_lines_are_kept_for_the_same_escaping_of_names_alone(kind: str) -> None:
    world = World()
    for escaping in ("underscores", "dots", "underscores", "values", "allow-utf-8"):
        accepted = f"{kind}; escaping={escaping}"
        assert world.page(accepted) == world.new_page(accepted)


def test_what_is_shown_no_more_is_not_kept() -> None:
    world = World()
    world.page()
    world.asked.clear()
    world.seconds.clear()
    world.page()
    assert list(world.lines._kept[False][1]) == [("rows", ("a",))]


def test_a_metric_without_numbers_has_its_head() -> None:
    world = World()
    world.seconds.clear()
    assert world.page().endswith("# HELP took_seconds Seconds.\n# TYPE took_seconds histogram\n")


def test_a_page_that_is_left_before_its_end_does_no_harm() -> None:
    world = World()
    world.page()
    world.asked["a",] = 7.0
    pieces = world.lines.write(content_type_of(""), world.shown(), world.others)
    next(pieces)
    pieces.close()
    assert world.page() == world.new_page()


def test_counts_may_come_between_two_pieces() -> None:
    world = World()
    pieces = world.lines.write(content_type_of(""), world.shown(), world.others)
    for number in range(4):
        next(pieces)
        world.asked[f"new{number}",] = 1.0
    whole(pieces)
    assert world.page() == world.new_page()


@pytest.mark.parametrize("version", ["1.0.0", "2.0.0", "1.0.17", "9.9"])
def test_versions_of_openmetrics_are_one_form(version: str) -> None:
    accepted = f"application/openmetrics-text; version={version}; escaping=underscores"
    assert content_type_of(accepted) == content_type_of(OPEN + "; escaping=underscores")
    assert content_type_of(accepted).startswith(OPEN)
    assert content_type_of(content_type_of(accepted)) == content_type_of(accepted)
