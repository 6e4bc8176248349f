from __future__ import annotations

import hashlib
import json
import tracemalloc
from datetime import datetime
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from app.access.access_file import (
    AccessFile,
    AccessFileError,
    digest_of,
    entry_of,
    parse_access_file,
    read_access_file,
)
from app.access.rules import Permission

SECRET = "ferry_this-is-a-key"  # noqa: S105 - of nobody
DIGEST = hashlib.sha256(SECRET.encode()).hexdigest()
KEY: dict[str, Any] = {"name": "a", "sha256": DIGEST, "models": ["m"], "permissions": ["infer"]}
GROUP = {"value": "g", "models": ["*"], "permissions": ["infer"]}
ISSUER: dict[str, Any] = {
    "issuer": "https://login.example.org/", "audience": "ferry", "jwks": "/etc/ferry/jwks.json",
    "algorithms": ["RS256"], "claim": "groups", "groups": [GROUP],
}  # fmt: skip


def parsed(*keys: Any, issuers: Any = ()) -> Any:
    return parse_access_file(json.dumps({"keys": keys, "issuers": list(issuers)}).encode())


def test_a_key_is_known_by_its_sha_256() -> None:
    read = parse_access_file(
        f"""
keys:
  - name: team-a
    sha256: {DIGEST.upper()}
    models: [digits, "bert-*"]
    permissions: [infer, metrics]
    rate: 10
    weight: 2
    expires: 2030-01-01T00:00:00Z
""".encode()
    )
    principal = read.keys[digest_of(SECRET.encode())]
    assert principal.name == "team-a"
    assert principal.expires_s == 1893456000
    rules = principal.rules
    assert rules.permissions == {Permission.INFER, Permission.METRICS}
    assert [rules.allow_model(name) for name in ("digits", "bert-1", "Digits", "digits2")] == [True, True, False, False]
    assert not rules.allow_every_model
    assert (rules.rate, rules.burst, rules.weight) == (10, 10, 2)


def test_what_is_not_given_is_not_limited() -> None:
    (principal,) = parsed(KEY).keys.values()
    assert (principal.expires_s, principal.rules.rate, principal.rules.weight) == (inf, inf, 1)
    (slow,) = parsed({**KEY, "rate": 0.5}).keys.values()
    assert slow.rules.burst == 1, "else it could never send"


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ([{**KEY, "sha256": SECRET}], "keys 1, sha256: expected the SHA-256 of the key"),
        ([KEY, {**KEY, "name": "b"}], "key 2 has the sha256 of another one"),
        ([KEY, {**KEY, "sha256": 64 * "0"}], "key 2 has the name 'a' of another one"),
        ([{**KEY, "name": "a b"}], "keys 1, name: "),
        ([{**KEY, "name": "token:me"}], "keys 1, name: "),
        ([{**KEY, "permissions": ["all"]}], "keys 1, permissions 1: Input should be 'infer', 'metadata'"),
        ([{**KEY, "permissions": []}], "keys 1, permissions: "),
        ([{**KEY, "models": []}], "keys 1, models: "),
        ([{name: value for name, value in KEY.items() if name != "models"}], "keys 1, models: Field required"),
        ([{**KEY, SECRET: 1}], "keys 1 has a field that is not known"),
        ([{**KEY, "rate": 0}], "keys 1, rate: Input should be greater than or equal to"),
        ([{**KEY, "rate": 1e-310}], "keys 1, rate: Input should be greater than or equal to"),
        ([{**KEY, "rate": None}], "keys 1, rate: Input should be a valid number"),
        ([{**KEY, "rate": True}], "keys 1, rate: a number"),
        ([{**KEY, "rate": inf}], "keys 1, rate: Input should be"),
        ([{**KEY, "rate": nan}], "keys 1, rate: Input should be"),
        ([{**KEY, "burst": 5}], "keys 1: burst limits nothing without rate"),
        ([{**KEY, "expires": None}], "keys 1, expires: a time and its zone"),
        ([{**KEY, "expires": 2027}], "keys 1, expires: a time and its zone"),
        ([{**KEY, "expires": "2030-01-01T00:00:00"}], "keys 1, expires: "),
        ([], "neither keys nor issuers"),
    ],
)
def test_what_cannot_be_used_is_told_without_showing_it(keys: Any, text: str) -> None:
    with pytest.raises(AccessFileError) as raised:
        parsed(*keys)
    assert text in str(raised.value)
    assert SECRET not in str(raised.value)
    assert DIGEST not in str(raised.value)


ENTRY = f"{{name: a, sha256: {DIGEST}, models: [m], permissions: [infer]"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"keys:\n- {ENTRY}}}\nkeys:\n- {ENTRY}}}", 3),  # as two calls of `ferry key new` append
        (f"keys:\n- {ENTRY}, expires: 2020-01-01T00:00:00Z,\n  expires: 2030-01-01T00:00:00Z}}", 3),
        (f"keys:\n- {ENTRY}, rate: 1, rate: 1000}}", 2),
        (json.dumps({"keys": [KEY]})[:-1] + ', "keys": []}', 1),
    ],
)
def test_a_field_that_is_there_twice_is_a_mistake_and_not_the_last_of_them(text: str, line: int) -> None:
    with pytest.raises(AccessFileError, match=f"line {line} has a field that is there before"):
        parse_access_file(text.encode())


def test_entries_may_take_fields_of_others_and_have_their_own_instead() -> None:
    """YAML's merge keys, also of entries that merge others."""
    read = parse_access_file(
        f"""
keys:
- <<: &b
    <<: &a {ENTRY}, rate: 1}}
    rate: 2
  name: c
- {{<<: *b, name: d, sha256: {64 * "e"}, rate: 3}}
- {{<<: *a, name: e, sha256: {64 * "f"}}}
""".encode()
    )
    assert [(each.name, each.rules.rate) for each in read.keys.values()] == [("c", 2), ("d", 3), ("e", 1)]


@pytest.mark.parametrize("expires", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00"])
def test_any_time_may_be_the_end(expires: str) -> None:
    (principal,) = parsed({**KEY, "expires": expires}).keys.values()
    assert principal.expires_s == datetime.fromisoformat(expires).timestamp()


def test_a_field_of_another_name_may_have_the_lists() -> None:
    read = parse_access_file(f"<<: {{keys: [{ENTRY}}}]}}".encode())
    assert digest_of(SECRET.encode()) in read.keys
    with pytest.raises(AccessFileError, match=r"keys 1, rate: "):
        parse_access_file(f"<<: {{keys: [{ENTRY}, rate: 0}}]}}".encode())


def test_of_many_keys_no_more_is_held_at_once_than_what_they_are() -> None:
    """What the collector of garbage walks stops all threads: of PyYAML's objects a key has 40 KB."""

    def peak_bytes(number: int) -> int:
        text = "keys:\n" + "".join(
            f"- {{name: k{each}, sha256: '{each:064x}', models: [m, n], permissions: [infer], rate: 9, weight: 2}}\n"
            for each in range(number)
        )
        content = text.encode()
        tracemalloc.start()
        parse_access_file(content)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak

    assert peak_bytes(400) - peak_bytes(200) < 200 * 8192


def test_of_many_mistakes_some_are_told() -> None:
    with pytest.raises(AccessFileError, match=r"keys 8: .*; and 9992 more$") as raised:
        parsed(*[1] * 10_000)
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize(
    "content", [f"keys: [{SECRET}", f"{SECRET}: [", SECRET, "- 1", "\xff", "keys: {}", "a: &a [*a]"]
)
def test_what_is_no_such_document_is_told_without_showing_it(content: str) -> None:
    with pytest.raises(AccessFileError) as raised:
        parse_access_file(content.encode("latin-1"))
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"algorithms": ["HS256"]}, "issuers 1, algorithms 1: "),
        ({"algorithms": ["none"]}, "issuers 1, algorithms 1: "),
        ({"algorithms": []}, "issuers 1, algorithms: "),
        ({"jwks": "http://login.example.org/keys"}, "issuers 1, jwks: a URL of https without a user, or"),
        ({"jwks": "keys.json"}, "issuers 1, jwks: a URL of https"),
        ({"jwks": "file:///etc/keys"}, "issuers 1, jwks: a URL of https"),
        ({"jwks": "https:/etc/keys"}, "issuers 1, jwks: a URL of https"),
        ({"jwks": "https://"}, "issuers 1, jwks: a URL of https"),
        ({"jwks": "https://me:password@login.example.org/keys"}, "issuers 1, jwks: a URL of https without a user"),
        ({"audience": ""}, "issuers 1, audience: "),
        ({"groups": [GROUP, GROUP]}, "group 2 has the value 'g' of another one"),
    ],
)
def test_an_issuer_has_safe_keys_and_algorithms(more: Any, text: str) -> None:
    with pytest.raises(AccessFileError) as raised:
        parsed(issuers=[{**ISSUER, **more}])
    assert text in str(raised.value)


@pytest.mark.parametrize("jwks", ["/etc/keys.json", "https://login.example.org/keys", "http://127.0.0.1:1/keys"])
def test_keys_of_an_issuer_come_from_a_file_or_by_https(jwks: str) -> None:
    read = parsed(issuers=[{**ISSUER, "jwks": jwks}])
    assert read.issuers["https://login.example.org/"].jwks == jwks


def test_a_file_is_read_and_one_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    with pytest.raises(AccessFileError, match=r"access\.yaml cannot be read: No such file"):
        read_access_file(path)
    path.write_text(entry_of("a", SECRET, models=["*"], permissions=["infer"], expires=None))
    assert SECRET not in path.read_text()
    assert digest_of(SECRET.encode()) in read_access_file(path).keys
    path.write_text("keys: ]")
    with pytest.raises(AccessFileError, match=r"The access file .*access\.yaml: it is not YAML, line 1"):
        read_access_file(path)


def test_callers_are_gone_with_their_keys_and_all_that_have_tokens_when_an_issuer_comes_or_goes() -> None:
    def gone(before: Any, after: Any) -> list[str]:
        is_gone = read(after).gone_since(read(before))
        return [name for name in (KEY["name"], "token:a", "token:a@x") if is_gone(name)]

    def read(document: Any) -> AccessFile:
        return parse_access_file(json.dumps(document).encode())

    other = {**ISSUER, "issuer": "https://other.example.org/"}
    both = {"keys": [KEY], "issuers": [ISSUER]}
    assert gone(both, both) == []
    assert gone(both, {"keys": [{**KEY, "sha256": 64 * "0"}], "issuers": [{**ISSUER, "audience": "b"}]}) == []
    assert gone(both, {"issuers": [ISSUER]}) == [KEY["name"]]
    for issuers in ([], [other], [ISSUER, other]):
        assert gone(both, {"keys": [KEY], "issuers": issuers}) == ["token:a", "token:a@x"]
