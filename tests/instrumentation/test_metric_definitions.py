from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from app.core.events import (
    BatchExecuted,
    ModelImproving,
    ModelPlaced,
    ModelStateChanged,
    RequestFinished,
    RowsProbed,
    RowsTried,
    ShadowChecked,
    VariantsChosen,
    tell_all,
)
from app.core.versions import ModelProblem, ProblemKind, VersionState
from app.instrumentation.counts import Counts
from app.instrumentation.metric_definitions import FERRY_METRICS, reference_table
from app.instrumentation.metrics import Metrics
from app.instrumentation.model_facts import ModelFacts
from app.instrumentation.state_metrics import ServerState
from app.runtime import CompiledPrograms
from app.transports.tls.served_tls import TlsState
from tests.instrumentation.pages import metrics_text
from tests.instrumentation.pipeline_events import pipeline_ended

STATE = ServerState(
    states={("m", 1): VersionState.AVAILABLE},
    problems=[ModelProblem("m", 2, ProblemKind.FAILED, "it is broken")],
    in_flight={("m", 1): 0},
    signatures={("m", 1): ("s",)},
    slots={"GPU:0": (1, 1)},
    device_memory={"GPU:0": (1, 2)},
    connections={"http": 1},
    held={"queue": 1},
    programs=CompiledPrograms(3, 2000),
    tls=TlsState({"server": 2e9}, {"loaded": 0, "failed": 1}, usable=False),
)

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_documentation_is_generated_from_the_list_of_metrics() -> None:
    _, head, rows = PAGE.read_text().partition("|---|---|---|---|\n")
    assert head
    assert rows == reference_table(), "take the rows from: python -m app.instrumentation.metric_definitions"


def test_the_live_page_shows_exactly_the_listed_metrics() -> None:
    counts = Counts()
    facts = ModelFacts()
    metrics = Metrics(counts, facts, lambda: STATE)
    tell = tell_all(counts.subscriptions, metrics.subscriptions, facts.subscriptions)
    tell(ModelStateChanged("m", 1, "LOADING"))
    tell(RequestFinished("tensorflow_rest", "200", "m", 1, "s", 0.1))
    tell(BatchExecuted("m", 1, "s", 5, 3, "full", 0.01, [0.001]))
    tell(pipeline_ended())
    tell(ModelPlaced("m", 1, ("CPU:0",)))
    tell(ModelImproving("m", 1, "larger batches"))
    tell(ShadowChecked("m", 1, "s", "agrees", 0.1))
    tell(RowsProbed("m", 1, "s", False, "graph", "requests share calls, proven by graph"))
    tell(RowsTried("m", 1, "s", 4, "agrees", 0.1))
    tell(VariantsChosen("m", 1, "s", {1: ("xla", 2.0)}))

    shown = {}
    for family in text_string_to_metric_families(metrics_text(metrics)):
        if family.name.startswith("process_"):  # prometheus_client's own
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels if label != "le"}
        shown[name] = (family.type, labels, family.documentation)
    assert shown == {name: (kind, set(labels), text) for name, kind, labels, text in FERRY_METRICS}
