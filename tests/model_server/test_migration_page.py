"""The page for those who come from TensorFlow Serving tells what the program does."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from app.codecs.protobuf.messages import message_class
from app.config.settings import Settings
from app.config.sources import variable
from app.instrumentation.counts import Counts
from app.instrumentation.tensorflow_metrics import TensorFlowMetrics
from app.model_server.cli import default_text
from app.model_server.flags import FLAGS
from app.transports.rendered_pages import whole
from tests.model_server.migration_claims import CLAIMS, NO_CLAIMS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "migrate-from-tensorflow-serving.md").read_text()


def rows() -> Iterator[str]:
    for flag in FLAGS.values():
        default = f"`{default_text(flag)}`" if default_text(flag) else ""
        yield f"| `--{flag.name}` | {default} | {'Does nothing. ' if flag.idle else ''}{flag.meaning} |"


def test_the_table_holds_every_flag_as_it_is() -> None:
    table = PAGE.partition("## Flag by flag")[2]
    assert [line for line in table.splitlines() if line.startswith("| `--")] == list(rows())


def test_every_flag_and_setting_that_is_named_exists() -> None:
    assert set(re.findall(r"--([a-z]+_[a-z_]+)", PAGE)) <= FLAGS.keys()
    assert set(re.findall("FERRY_[A-Z_]+", PAGE)) <= {variable(name) for name in Settings.model_fields}


def test_every_field_of_the_batching_file_is_told() -> None:
    fields = message_class("tensorflow.serving.BatchingParameters").DESCRIPTOR.fields_by_name
    assert all(f"`{name}`" in PAGE for name in fields)


def test_the_metrics_that_are_named_are_those_of_the_page() -> None:
    page = whole(TensorFlowMetrics(Counts()).render()).decode()
    shown = set(re.findall(r"^# TYPE (\S+) (?:counter|histogram)$", page, re.MULTILINE))
    assert set(re.findall(r"\| `(:tensorflow:\S+)` \|", PAGE)) == shown


# --- every sentence is tried ---


def sentences() -> Iterator[str]:
    """The sentences and rows of the page, but for its flags, which have a test of their own."""
    text = re.sub(r"^(```.*?^```|#.*?|Contents:.*?\n\n|\| --.*?)$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=- |\|)", text):
        line = " ".join(block.split()).removeprefix("- ")
        if line.startswith("|"):
            yield from [line] * (not re.match(r"\|(---| In `| Name |Flag| Flag| `--)", line))
        else:
            yield from filter(None, re.split(r"(?<=[.:])\s+(?=[A-Z`*])", line))


def test_every_sentence_is_a_claim_with_a_test() -> None:
    known = [*CLAIMS, *NO_CLAIMS]
    untried = [each for each in sentences() if sum(words in each for words in known) != 1]
    assert untried == [], "each needs an entry in migration_claims.py"
    told = list(sentences())
    assert [words for words in known if sum(words in each for each in told) != 1] == [], "no sentence says so"


def test_every_test_of_a_claim_exists() -> None:
    for tests in CLAIMS.values():
        for test in tests:
            path, _, name = test.partition("::")
            tree = ast.parse((ROOT / path).read_text())
            defined = {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
            assert name in defined, test
