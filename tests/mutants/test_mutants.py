"""The mutation tester itself: which faults it plants, that they are planted, and what it counts."""

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutants.operators import Mutant, mutants
from tests.mutants.planting import NotPossible, plant, users_of_constant
from tests.mutants.run import ACCEPTED, KILLED, NOT_REACHED, SURVIVED, TIMED_OUT, accepted, report

SOURCE = '''
"""A text is no fault."""
from dataclasses import dataclass

LIMIT = 8
TABLE = {"a": 1}

def fits(rows: int, most: int = 4, *, room: int = 2, table=TABLE) -> bool:
    """A text."""
    if rows < 0:
        raise ValueError("rows" + str(rows))
    assert rows >= 0
    return rows <= most and rows != room and table["a"] == 1

@dataclass(slots=True)
class Lane:
    rows: int = 0

    def add(self, rows):
        self.rows += min(rows, LIMIT)

    @property
    def full(self):
        return not self.rows < LIMIT

    @staticmethod
    def of(*each):
        lane = Lane()
        for rows in each:
            if rows > 3:
                break
            lane.add(rows)
        return lane

    def nested(self):
        double = lambda: 2 * self.rows
        return double()

def ordered():
    log = []
    log.append(1)
    log.append(2)
    return log

def emptied():
    log = []
    try:
        log.append("body")
    finally:
        log.append("end")
    return log
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = tmp_path / "mutated.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("app.mutated_for_a_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "app.mutated_for_a_test", module)
    spec.loader.exec_module(module)
    return module


def planted(before: str, after: str, function: str) -> None:
    tree = ast.parse(SOURCE)
    (mutant,) = [
        each
        for each in mutants("app/mutated_for_a_test.py", tree)
        if (each.before, each.after, each.function or each.name) == (before, after, function)
    ]
    plant(mutant, tree)


def test_what_decides_is_mutated_and_texts_are_not() -> None:
    found = {(each.function or each.name, each.before, each.after) for each in mutants("x.py", ast.parse(SOURCE))}
    assert {
        ("LIMIT", "8", "16"),
        ("LIMIT", "8", "4"),
        ("fits", "4", "5"),
        ("fits", "rows <= most", "rows < most"),
        ("fits", "rows <= most", "rows > most"),
        ("fits", "rows < 0", "rows <= 0"),
        ("fits", "if rows < 0:", "if False:"),
        ("Lane.add", "self.rows += min(rows, LIMIT)", "pass"),
        ("Lane.add", "min(rows, LIMIT)", "max(rows, LIMIT)"),
        ("Lane.full", "not self.rows < LIMIT", "self.rows < LIMIT"),
        ("Lane.of", "lane.add(rows)", "pass"),
        ("Lane.of", "break", "continue"),
        ("Lane.nested", "2 * self.rows", "2 / self.rows"),
    } <= found
    assert not [each for each in found if "text" in each[1] or "ValueError" in each[1] or "slots" in each[1]]
    assert not [each for each in found if each[1] in {"rows >= 0", "rows + str(rows)"}]


ROOMS = """
class Server:
    def __init__(self, settings, weights, waits_s):
        self.weights = weights
        self.waits_s = waits_s
        self.limit = settings.limit
        self.batcher = Batcher(settings.rows, weights, clock=self.clock, options=self.options)

    async def stop(self):
        try:
            await self.grpc.stop()
            self.engine.close()
        finally:
            self.listener.close()

    def submit(self, model, outputs):
        key = model.name, model.version, outputs
        self.rows += 1
        return self.known[model.name, outputs] if key else (model, outputs)

    def form(self, request):
        return request.signature, request.outputs, request.caller, request.shapes

    def cancel(self, request):
        self.rows -= 1
        request.release()
"""


def test_faults_between_rooms_are_planted() -> None:
    """What is not let go, not passed on, not told apart, out of order."""
    found = {(each.function, each.before, each.after) for each in mutants("x.py", ast.parse(ROOMS))}
    made = "self.batcher = Batcher(settings.rows, weights, clock=self.clock, options=self.options)"
    made = made.partition(" = ")[2]
    copied = "__import__('copy').copy"
    assert {
        # A release left out, a counter not counted back.
        ("Server.cancel", "request.release()", "pass"),
        ("Server.cancel", "self.rows -= 1", "pass"),
        # Two closes swapped, a `finally` emptied.
        ("Server.stop", "await self.grpc.stop(); self.engine.close()", "self.engine.close(); await self.grpc.stop()"),
        ("Server.stop", "self.listener.close()", "pass"),
        # Keys shortened.
        ("Server.submit", "key = (model.name, model.version, outputs)", "key = (model.name, outputs)"),
        ("Server.submit", "key = (model.name, model.version, outputs)", "key = (model.name, model.version)"),
        ("Server.submit", "self.known[model.name, outputs]", "self.known[model.name,]"),
        (
            "Server.form",
            "return (request.signature, request.outputs, request.caller, request.shapes)",
            "return (request.signature, request.outputs, request.shapes)",
        ),
        # Settings not passed on.
        ("Server.__init__", "settings.limit", "type(settings).model_fields['limit'].default"),
        ("Server.__init__", made, "Batcher(settings.rows, weights, clock=self.clock)"),
        # Copies in place of the thing.
        ("Server.__init__", "self.weights = weights", f"self.weights = {copied}(weights)"),
        ("Server.__init__", made, made.replace(" weights", f" {copied}(weights)")),
        ("Server.__init__", made, made.replace("=self.options", f"={copied}(self.options)")),
    } <= found
    assert not [each for each in found if f"{copied}(waits_s)" in each[2] or f"{copied}(self.clock)" in each[2]]


def test_two_swapped_calls_run_in_their_other_order(module: ModuleType) -> None:
    planted("log.append(1); log.append(2)", "log.append(2); log.append(1)", "ordered")
    assert module.ordered() == [2, 1]
    planted("try:", "try:", "emptied")
    assert module.emptied() == ["body"]


def test_each_mutant_has_a_key_of_its_own_and_can_be_compiled() -> None:
    count = len(mutants("x.py", ast.parse(SOURCE)))
    keys = set()
    for number in range(count):
        tree = ast.parse(SOURCE)
        mutant = mutants("x.py", tree)[number]
        keys.add(mutant.key)
        mutant.plant()
        text = ast.unparse(ast.fix_missing_locations(tree))
        assert text != ast.unparse(ast.parse(SOURCE)), mutant
        compile(tree, "x.py", "exec")
    assert len(keys) == count


def test_a_planted_function_runs_also_where_it_was_imported_before(module: ModuleType) -> None:
    fits, lane = module.fits, module.Lane(7)
    assert fits(4)
    planted("rows <= most", "rows < most", "fits")
    assert not fits(4)
    planted("not self.rows < LIMIT", "self.rows < LIMIT", "Lane.full")
    assert lane.full
    planted("break", "continue", "Lane.of")
    assert module.Lane.of(1, 9, 1).rows == 2


def test_planted_defaults_and_constants_hold(module: ModuleType) -> None:
    planted("4", "5", "fits")
    assert module.fits(5)
    planted("8", "16", "LIMIT")
    lane = module.Lane()
    lane.add(20)
    assert lane.rows == 16
    planted("1", "2", "TABLE")
    assert not module.fits(1)


def test_the_users_of_a_constant_are_found_beside_a_module_that_may_not_be_imported(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "forbidden_for_a_test", None)  # type: ignore[arg-type] # so an import fails
    (mutant,) = [
        each
        for each in mutants("app/mutated_for_a_test.py", ast.parse(SOURCE))
        if (each.name, each.after) == ("LIMIT", "16")
    ]
    assert {"app/mutated_for_a_test.py Lane.add", "app/mutated_for_a_test.py Lane.full"} <= set(
        users_of_constant(mutant)
    )
    assert module.LIMIT == 8


def test_what_cannot_be_replaced_is_said(module: ModuleType) -> None:
    tree = ast.parse(SOURCE)
    (mutant, *_) = [each for each in mutants("app/mutated_for_a_test.py", tree) if each.function == "fits"]
    module.fits = len
    with pytest.raises(NotPossible):
        plant(mutant, tree)


def mutant_of(source: str, number: int = 0) -> Mutant:
    return mutants("app/x.py", ast.parse(source))[number]


def test_the_report_counts_the_accepted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    less, other = mutant_of("def f(a):\n    return a < 1"), mutant_of("def g(a):\n    return a < 1")
    monkeypatch.setattr("tests.mutants.run.accepted", lambda: {other.key: "the same"})
    text = report([(less, SURVIVED), (other, SURVIVED), (other, KILLED), (less, TIMED_OUT), (other, NOT_REACHED)])
    assert str(less) == f"app/x.py:2 f\n    - {less.before}\n    + {less.after}"
    assert text.endswith("all: 66.7 % killed (2 accepted, 1 killed, 1 survived, 1 timed out)")


def test_the_report_tells_what_was_accepted_and_exists_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    less, more = mutant_of("def f(a):\n    return a < 1"), mutant_of("def f(a):\n    return a > 1")
    elsewhere = more.key.replace("app/x.py", "app/y.py")
    monkeypatch.setattr("tests.mutants.run.accepted", lambda: {less.key: "old", more.key: "new", elsewhere: "not run"})
    assert report([(more, SURVIVED)]).startswith(f"accepted, but there is no such mutant: {less.key}\n\n")


def test_every_accepted_mutant_has_a_reason() -> None:
    lines = [line for line in ACCEPTED.read_text().splitlines() if line and not line.startswith("#")]
    assert len(accepted()) == len(lines)
    assert all(key.startswith("app/") and " -> " in key and reason.strip() for key, reason in accepted().items())
