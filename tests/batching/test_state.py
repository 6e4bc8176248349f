import ast
import inspect
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import app.batching
from app.batching.state import BatcherOptions, BatchingState
from app.core.events import ignore
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeDevice, fake_time, run_in_fake_time

#: A reader keeps about so many parts in mind. What parts share has a name: BatchingState, BatcherOptions.
MOST_PARAMETERS = 7


def constructors() -> dict[str, int]:
    """The parameters of each constructor that is written out; records (dataclasses, named tuples) have fields."""
    found = {}
    for module in walk_packages(app.batching.__path__, "app.batching."):
        path = Path(inspect.getfile(import_module(module.name)))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                for each in node.body:
                    if isinstance(each, ast.FunctionDef) and each.name == "__init__":
                        arguments = each.args
                        own = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs][1:]
                        found[f"{module.name}.{node.name}"] = len(own)
    return found


def test_no_constructor_takes_more_parameters_than_a_reader_keeps_in_mind() -> None:
    parameters = constructors()
    assert parameters["app.batching.batcher.Batcher"] > 1
    assert {name: count for name, count in parameters.items() if count > MOST_PARAMETERS} == {}


def test_options_decide_which_parts_there_are() -> None:
    async def main() -> None:
        def made(options: BatcherOptions) -> BatchingState:
            return BatchingState([FakeDevice()], WorkConserving(), options, ignore, fake_time)

        plain = made(BatcherOptions(8))
        assert (plain.admission is not None, plain.queue.callers, plain.queue.room.max_rows) == (True, None, 8)
        other = made(BatcherOptions(0, max_queue_bytes=64, admission=False, fair_callers=True, weights={"m": 2.0}))
        assert (other.admission, other.queue.callers is not None, other.queue.room.max_rows) == (None, True, 64)
        assert other.scheduler.fair_queueing.weights
        assert not plain.scheduler.fair_queueing.weights

    run_in_fake_time(main())


def test_devices_are_needed_while_a_request_waits_and_while_the_server_drains() -> None:
    async def main() -> None:
        state = BatchingState([FakeDevice()], WorkConserving(), BatcherOptions(8), ignore, fake_time)
        assert (state.has_waiting(), state.is_busy()) == (False, False)
        state.drain.begun = True
        assert (state.has_waiting(), state.is_busy()) == (False, True)
        state.drain.begun = False
        state.queue.rows = 1
        assert (state.has_waiting(), state.is_busy()) == (True, True)

    run_in_fake_time(main())
