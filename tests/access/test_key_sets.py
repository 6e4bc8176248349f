from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.access.key_sets import KeySet, KeysUnreadable
from tests.access.jwks import EC, RSA, dripping_server, jwks_server, key_set, public
from tests.support.waiting import HANG_S


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_keys_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    keys = KeySet(str(path))
    assert keys.is_due()
    with pytest.raises(KeysUnreadable, match=r"keys\.json: No such file"):
        keys.fetch()
    path.write_bytes(key_set(public(RSA, "a")))
    assert keys.changed(keys.fetch())
    assert keys.known
    assert keys.find("a", "RS256") is not None
    assert keys.find("b", "RS256") is None
    assert not keys.changed(keys.fetch()), "nothing has"


def test_keys_come_by_http_and_a_failure_keeps_those_that_are_known() -> None:
    clock = Clock()
    with jwks_server() as server:
        server.content = key_set(public(RSA, "a"))
        keys = KeySet(server.url, clock)
        assert keys.changed(keys.fetch())
        server.status = 500
        for _ in range(3):
            with pytest.raises(KeysUnreadable, match="Internal Server Error"):
                keys.fetch()
            keys.failed()
    with pytest.raises(KeysUnreadable, match="refused"):
        keys.fetch()
    assert keys.find("a", "RS256") is not None


def test_keys_come_from_nowhere_else() -> None:
    with jwks_server() as server:
        server.content, server.status = key_set(public(RSA, "a")), 302
        with pytest.raises(KeysUnreadable):
            KeySet(server.url).fetch()
        assert server.asked == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"keys": {}}', b'{"keys": []}', b'{"keys": [1]}', b'{"keys": [{"kty": "oct", "k": "YQ"}]}'],
)
def test_what_is_no_set_of_keys_changes_nothing(content: bytes) -> None:
    keys = KeySet("/keys")
    keys.changed(key_set(public(RSA, "a")))
    with pytest.raises(KeysUnreadable, match="/keys: ") as raised:  # the audit log says which issuer's set it is
        keys.changed(content)
    assert str(raised.value).count("/keys") == 1
    assert keys.find("a", "RS256") is not None


@pytest.mark.parametrize(
    "odd",
    [
        {**public(EC, "b"), "alg": "none"},  # PyJWT raises NotImplementedError
        {**public(EC, "b"), "alg": ["ES256"]},
        {**public(EC, "b"), "x": 5},
        jwt.algorithms.ECAlgorithm.to_jwk(EC, as_dict=True) | {"kid": "b"},  # private: whoever reads the set could sign
        jwt.algorithms.RSAAlgorithm.to_jwk(RSA, as_dict=True) | {"kid": "b"},
        5,
    ],
)
def test_a_key_that_verifies_nothing_is_left_out_and_the_others_stay(odd: Any) -> None:
    keys = KeySet("/keys")
    assert keys.changed(key_set(odd, public(RSA, "a")))
    assert keys.find("a", "RS256") is not None
    assert keys.find("b", "ES256") is keys.find("b", "RS256") is None
    with pytest.raises(KeysUnreadable, match="no key that verifies"):
        keys.changed(key_set(odd))


def test_what_is_too_long_is_not_taken() -> None:
    with jwks_server() as server:
        server.content = b" " * (2**20 + 1)
        with pytest.raises(KeysUnreadable, match="more than"):
            KeySet(server.url).fetch()


@pytest.mark.parametrize(
    ("begins", "scheme", "proxy"),
    [
        (b"HTTP", "http", False),
        (b"HTTP/1.1 200 OK\r\nx-header: ", "http", False),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", "http", False),
        (b"HTTP/1.1 200 OK\r\n\r\n{", "http", False),
        (b"HTTP/1.1 200 OK\r\nx-header: ", "http", True),
        (b"\x16\x03\x03\x3f\xff", "https", False),
    ],
    ids=["status line", "head", "length of a chunk", "body", "head of a proxy", "handshake of TLS"],
)
def test_a_server_that_drips_is_given_up(
    begins: bytes, scheme: str, proxy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.access.key_sets._FETCH_S", 0.1)
    failures: list[KeysUnreadable] = []

    def fetch(source: str) -> None:
        with pytest.raises(KeysUnreadable) as raised:
            KeySet(source).fetch()
        failures.append(raised.value)

    with dripping_server(begins) as url:
        if proxy:
            monkeypatch.setenv("https_proxy", url)
            monkeypatch.delenv("no_proxy", raising=False)
        source = "https://login.example.org/keys" if proxy else url.replace("http", scheme)
        fetching = threading.Thread(target=fetch, args=(source,))
        fetching.start()
        fetching.join(HANG_S)
        assert "the server takes too long" in str(failures[0])
    fetching.join()


def test_keys_that_are_not_known_are_looked_for_every_30_s_at_most() -> None:
    clock = Clock()
    keys = KeySet("https://login.example.org/keys", clock)
    keys.changed(key_set(public(RSA, "a")))
    keys.want()
    assert not keys.is_due()
    clock.now = 30.0
    keys.want()
    assert keys.is_due()
    keys.changed(key_set(public(RSA, "a"), public(EC, "b")))
    for _ in range(1000):
        keys.want()
    assert not keys.is_due()
    assert keys.find("b", "ES256") is not None


def test_they_are_looked_at_every_5_minutes_and_sooner_after_a_failure_but_ever_more_rarely() -> None:
    clock = Clock()
    keys = KeySet("https://login.example.org/keys", clock)
    keys.changed(key_set(public(RSA, "a")))
    assert keys._due_s == 300.0
    pauses = []
    for _ in range(9):
        clock.now = keys._due_s
        keys.failed()
        keys.want()
        pauses.append(keys._due_s - clock.now)
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    clock.now = keys._due_s
    keys.changed(key_set(public(EC, "b")))
    assert keys._due_s - clock.now == 300.0


@given(looks=st.lists(st.sampled_from(["fails", "same", "others", "broken"]), max_size=8))
def test_a_look_that_succeeds_leaves_nothing_of_those_that_failed(looks: list[str]) -> None:
    """When it is looked next, also for a token whose key is not known, and how soon after the next failure."""
    clock = Clock()
    contents = {"same": key_set(public(RSA, "a")), "others": key_set(public(EC, "b"))}
    keys, fresh = KeySet("https://keys", clock), KeySet("https://keys", clock)
    for look in [*looks, "same"]:
        if look == "fails":
            keys.failed()
        elif look == "broken":
            with pytest.raises(KeysUnreadable):
                keys.changed(b"{")
            keys.failed()
        else:
            keys.changed(contents[look])
    fresh.changed(contents["same"])
    for done in (KeySet.want, KeySet.failed, KeySet.want, KeySet.failed):
        done(keys)
        done(fresh)
        assert _due_in(keys, clock) == _due_in(fresh, clock)
    assert keys.find("a", "RS256") is not None
    assert keys.find("b", "ES256") is None


def _due_in(keys: KeySet, clock: Clock) -> int:
    """Seconds."""
    began_s = clock.now
    while not keys.is_due():
        clock.now += 1.0
    waited_s, clock.now = clock.now - began_s, began_s
    return int(waited_s)
