"""`ferry key new`: the key is shown once, and its entry can be used."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from app.access.access import Access
from app.access.access_file import parse_access_file
from app.access.rules import Need, Permission
from app.cli import app
from app.core.errors import NotAllowed


def test_the_entry_is_for_the_key_that_is_printed_once() -> None:
    made = CliRunner().invoke(app, ["key", "new", "team-a", "--models", "digits,bert-*", "--days", "2"])
    assert made.exit_code == 0, made.output
    key = made.stderr.splitlines()[0].rpartition(" ")[2]
    assert key.startswith("ferry_")
    assert len(key) > 40
    assert key not in made.stdout
    access = Access(parse_access_file(made.stdout.encode()))
    permit = access.permit([(b"x-api-key", key.encode())], Need(Permission.INFER, "bert-2"))
    assert permit.principal.name == "team-a"
    with pytest.raises(NotAllowed):
        access.permit([(b"x-api-key", key.encode())], Need(Permission.METRICS))


def test_two_keys_differ() -> None:
    keys = {CliRunner().invoke(app, ["key", "new", "a"]).stderr.splitlines()[0] for _ in range(2)}
    assert len(keys) == 2


@pytest.mark.parametrize(("arguments", "text"), [(["a b"], "name"), (["a", "--permissions", "all"], "permissions")])
def test_a_value_that_the_file_may_not_have_is_one_line(arguments: list[str], text: str) -> None:
    made = CliRunner().invoke(app, ["key", "new", *arguments])
    assert made.exit_code != 0
    assert text in made.stderr
    assert "ferry_" not in made.output
