"""A head that is recognised means exactly what HeadParser says, and whatever a client sends, little is remembered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.access.access import Access
from app.access.access_file import AccessFile, digest_of
from app.access.rules import Need, Permission, Principal, Rules
from app.transports.http.connections.connection_limits import ConnectionLimits
from app.transports.http.direct.fast_path import MAX_HEADS, FastPath
from app.transports.http.exchange import Exchange
from app.transports.http.head import READ_FIELDS, RequestHead
from app.transports.http.replies import HttpOptions
from app.transports.http1 import known_heads
from app.transports.http1.alike_heads import AlikeHeads, Recognised
from app.transports.http1.head_parser import EMPTY_LINE, HeadParser
from app.transports.http1.known_heads import FRAMING, KnownHeads
from app.transports.request_caller import CallerRule
from tests.support.fakes import fake_time, run_in_fake_time
from tests.transports.http1.connection_world import COMPUTE_S, PREDICT, ROW, World, played, request
from tests.transports.http1.rfc_cases import CASES as RFC_CASES
from tests.transports.http1.test_http1_connection import CASES

MAX_BODY = 5000


class Protocol:
    """Computes whatever it is asked."""

    def __init__(self, callers: str = "") -> None:
        self.options = HttpOptions(MAX_BODY, 1000.0, CallerRule.of(callers))

    def computes(self, _: str, __: str) -> bool:
        return True

    def needs(self, _: str, __: str) -> Need:
        return Need(Permission.INFER)


#: Of a request: the longest that counts, and others that are as long with blanks around them.
IDS = [
    *(digit * size for size in (3, 128, 129) for digit in (b"1", b"2")),
    b"3" * 127 + b" ",
    b" " + b"3" * 128,
    b"4 4",
]

#: By key: who has it. Some have the same length.
KEYS = {"a": "first", "b": "second", "long-key": "third"}


def access() -> Access:
    rules = Rules(("*",), frozenset({Permission.INFER}))
    return Access(AccessFile({digest_of(key.encode()): Principal(name, rules) for key, name in KEYS.items()}))


def no_heads(callers: str = "") -> KnownHeads:
    """`callers`: as the setting fair_callers; `access` asks for a key instead."""
    protocol = cast(Any, Protocol("" if callers == "access" else callers))
    return KnownHeads(FastPath(lambda _: protocol, access=access() if callers == "access" else None))


def parsed(head: bytes, store: KnownHeads, limits: ConnectionLimits) -> Recognised | None:
    """What HeadParser makes of it, by itself."""
    parser = HeadParser(limits)
    if not parser.feed(head) or parser.fault is not None or parser.end != len(head):
        return None
    return store.admit(parser)


def meaning(recognised: Recognised | None) -> object:
    """What may decide an answer."""
    if recognised is None:
        return None
    (_, head, keep_alive, _), length, request_id, has_parent, end, _ = recognised
    caller = head.permit and head.permit.principal.name
    return head.method, head.path, head.query, head.headers, keep_alive, length, request_id, has_parent, end, caller


def assert_recognised_as_parsed(
    heads: Sequence[bytes], callers: str = "", limits: ConnectionLimits | None = None
) -> None:
    """One after another, each three times: by its lines, by its layout and by its bytes.

    Each is expected by a connection whose last head was any of those before, too; then a body may follow it at once.
    """
    store = no_heads(callers)
    limits = limits or ConnectionLimits()
    expected: list[AlikeHeads] = []
    for head in heads:
        meant = meaning(parsed(head, no_heads(callers), limits))
        for each in expected[-12:]:
            found = each.read(head + b"\r\n{}")
            assert found is None or meaning(found) == meant
            assert each.read(head[:-1]) is None
        for _ in range(3):
            found = store.find(head)
            assert found is None or meaning(found) == meant
            if found is not None and found[-1] is not None and found[-1] not in expected:
                expected.append(found[-1])
        assert meaning(parsed(head, store, limits)) == meant


# --- the law ---

NAMES = [
    *(name.decode() for name in sorted({*FRAMING, *READ_FIELDS})),
    "Content-Length", "content-length", "CONTENT-LENGTH", "Host", "Traceparent", "x-request-id", "X-Request-ID",
    "User-Agent", "Transfer_Encoding", "X-Content-Length", "Content-Length-", "x", "X-Api-Key",
]  # fmt: skip
VALUES = [
    "", "a", "12", "0", "007", "5, 5", "+5", "5_0", "99999999999999999999", "close", "chunked", "keep-alive", "h2c",
    "here", "application/json", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "gzip", "\xe9", "\x7f",
]  # fmt: skip
ODD = ["\r", "\n", "\r\n", "\0", "\t", " ", ":", "\x0b", "\x85", "\xa0", "\xff", ",", "(", "\r\n "]

text = st.one_of(st.sampled_from(VALUES), st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=9))
field = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(NAMES),
    st.sampled_from([": ", ":", ":  ", ":\t", " : ", "", "\t:"]).filter(bool),
    text,
    st.sampled_from(["", "", "", " ", "\t", " x"]),
)
line = st.sampled_from(
    ["POST /v1/models/m:predict HTTP/1.1", "POST /v1/models/n:predict HTTP/1.1", "POST /a?b HTTP/1.1", "GET / HTTP/1.1",
     "POST  / HTTP/1.1", "POST / HTTP/1.0", "POST /#x HTTP/1.1", "", "\r\nPOST / HTTP/1.1"]
)  # fmt: skip


@st.composite
def a_head(draw: st.DrawFn) -> bytes:
    """Mostly valid ones: what is never accepted shows nothing."""
    lines = [draw(st.one_of(st.just("POST /v1/models/m:predict HTTP/1.1"), line)), "Host: here"]
    lines += draw(st.lists(st.one_of(field, st.sampled_from(["Content-Length: 5", "Content-Length: 31"])), max_size=6))
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def with_a_key(*keys: str) -> bytes:
    lines = ["POST /v1/models/m:predict HTTP/1.1", "Host: here", "traceparent: 1"]
    lines += [f"Authorization: Bearer {key}" for key in keys]
    return "\r\n".join([*lines, "Content-Length: 5", "", ""]).encode()


@st.composite
def with_key(draw: st.DrawFn) -> bytes:
    lines = draw(a_head()).split(b"\r\n")
    for _ in range(draw(st.integers(1, 2))):
        key = draw(st.sampled_from([*KEYS, "c", ""]))
        name = draw(st.sampled_from(["Authorization: Bearer ", "x-api-key: ", "X-API-Key:", "authorization: "]))
        lines.insert(draw(st.integers(1, len(lines) - 2)), f"{name}{key}".encode())
    return b"\r\n".join(lines)


@st.composite
def alike(draw: st.DrawFn, heads_: st.SearchStrategy[bytes] | None = None) -> list[bytes]:
    """Heads that differ from the first in a line, or in some bytes."""
    first = draw(a_head() if heads_ is None else heads_)
    heads = [first]
    for _ in range(draw(st.integers(1, 5))):
        base = bytearray(draw(st.sampled_from(heads)))
        kind = draw(st.sampled_from(["bytes", "insert", "remove", "line", "digits"]))
        at = draw(st.integers(0, len(base) - 1))
        if kind == "bytes":
            odd = draw(st.one_of(st.sampled_from(ODD), st.sampled_from("aZ09-"))).encode("latin-1")
            base[at : at + len(odd)] = odd
        elif kind == "insert":
            base[at:at] = draw(st.sampled_from(ODD)).encode("latin-1")
        elif kind == "remove":
            del base[at : at + draw(st.integers(1, 4))]
        elif kind == "line":
            lines = bytes(base).split(b"\r\n")
            lines.insert(draw(st.integers(1, max(1, len(lines) - 2))), draw(field).encode("latin-1"))
            base[:] = b"\r\n".join(lines)
        else:
            base[:] = bytes(base).replace(b"Length: 5", b"Length: 6").replace(b"Length: 31", b"Length: 79")
        heads.append(bytes(base))
    whole = [head[: head.find(EMPTY_LINE) + len(EMPTY_LINE)] for head in heads]  # as a connection cuts them
    return [head for head in whole if head.endswith(EMPTY_LINE)]


@given(alike())
@example([b"POST / HTTP/1.1\r\nHost: a\r\n\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nx: b\r\n c\r\n\r\n"])
@example([b"POST / HTTP/1.1\r\nHost: a\r\nx: b\r\n\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nx :b\r\n\r\n"])
@example([b"POST / HTTP/1.1\r\nHost: a\r\nx: bcdef\r\n\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nx: b\nc:d\r\n\r\n"])
@example([b"POST / HTTP/1.1\r\nHost: a\r\nAccept: %b%d%\r\nx: " + value + EMPTY_LINE for value in (b"1", b"2", b"%")])
@example([b"POST / HTTP/1.1\r\nHost: a\r\nx-request-id: " + value + EMPTY_LINE for value in IDS])
def test_what_is_recognised_is_what_would_be_parsed(heads: list[bytes]) -> None:
    assert_recognised_as_parsed([*heads, *heads, *reversed(heads)])


@given(alike())
def test_so_it_is_where_a_header_names_the_caller(heads: list[bytes]) -> None:
    assert_recognised_as_parsed([*heads, *heads, *reversed(heads)], "header:X-Api-Key")


@pytest.mark.parametrize("name", ["x-request-id", "traceparent", "content-length"])
def test_so_it_is_where_a_field_of_each_requests_own_names_the_caller(name: str) -> None:
    assert_recognised_as_parsed([a_traced_head(1), a_traced_head(1, 32)], f"header:{name}")


@given(alike(with_key()))
@example([with_a_key("a"), with_a_key("b"), with_a_key("long-key"), with_a_key("c"), with_a_key("a", "b")])
def test_so_it_is_where_a_credential_is_needed(heads: list[bytes]) -> None:
    """Whose request it is, is a part of what it means: never another one's whose head is alike."""
    assert_recognised_as_parsed([*heads, *heads, *reversed(heads)], "access")


@given(alike())
def test_so_it_is_within_narrow_limits(heads: list[bytes]) -> None:
    assert_recognised_as_parsed([*heads, *heads], limits=ConnectionLimits(max_head_bytes=110))


def test_so_it_is_at_the_most_headers() -> None:
    heads = [a_traced_head(number, **{f"X-{each}": "y" for each in range(120 + number)}) for number in range(4)]
    assert_recognised_as_parsed([*heads, *reversed(heads)])


# --- what is recognised, so that the law is not empty ---


def a_traced_head(
    number: int, length: int = 31, line: bytes = b"POST /v1/models/m:predict HTTP/1.1", **more: str
) -> bytes:
    lines = [
        line,
        b"Host: here",
        b"User-Agent: client/%d" % (number % 7),
        b"Content-Type: application/json",
        b"traceparent: 00-%032x-%016x-01" % (number, number),
        b"x-request-id: %x" % number**3,
        b"Content-Length: %d" % length,
        *(b"%b: %b" % (name.encode(), value.encode()) for name, value in more.items()),
    ]
    return b"\r\n".join([*lines, b"", b""])


def known(*heads: bytes) -> KnownHeads:
    store = no_heads()
    for head in heads:
        assert parsed(head, store, ConnectionLimits()) is not None
    return store


def test_heads_that_differ_in_what_nobody_reads_have_one_meaning() -> None:
    store = known(a_traced_head(1))
    others = [store.find(a_traced_head(number, number % 90)) for number in range(2, 2000)]
    assert all(others)
    assert len({id(each[0]) for each in others if each}) == 1
    assert [each[1] for each in others if each] == [number % 90 for number in range(2, 2000)]


def test_a_head_is_expected_to_be_like_the_one_before() -> None:
    """With values of its own; one that is equal to it is told by its bytes from then on."""
    store = known(a_traced_head(1))
    found = store.find(a_traced_head(100))
    assert found is not None
    expected = found[-1]
    assert expected is not None
    assert expected.read(a_traced_head(101, 7) + b"[1,2,3]") is None  # its length has one digit less
    other = expected.read(a_traced_head(101, 78) + b"[1]")
    assert other is not None
    assert meaning(other) == meaning(parsed(a_traced_head(101, 78), store, ConnectionLimits()))
    assert other[-1] is expected

    again = expected.read(a_traced_head(101, 78) + b"[1]")
    assert again == (*other[:-1], None)
    assert store.find(a_traced_head(101, 78)) is again


def test_a_head_that_is_expected_may_have_another_request_line() -> None:
    """Of those that are known, and no longer than is remembered."""
    lines = [b"POST /v1/models/%b:predict HTTP/1.1" % name for name in (b"m", b"n", b"unknown", b"l" * 200)]
    store = known(*(a_traced_head(1, line=line) for line in (*lines[:2], lines[3])))
    learnt = [store.find(a_traced_head(100, line=line)) for line in lines]
    expected = learnt[0] and learnt[0][-1]
    assert expected is not None
    found = [expected.read(a_traced_head(101, line=line) + b"[1]") for line in lines]
    assert [each and each[0].head.path for each in found] == [
        "/v1/models/m:predict",
        "/v1/models/n:predict",
        None,
        None,
    ]
    assert found[1]
    assert learnt[1]
    assert found[1][-1] is learnt[1][-1]
    assert expected.read(a_traced_head(101, line=b"x" * 5)) is None
    assert expected.read(b"x" * 200) is None


@pytest.mark.parametrize("name", sorted({*FRAMING, *READ_FIELDS}))
def test_a_field_that_is_read_is_never_left_out(name: bytes) -> None:
    store = known(a_traced_head(1))
    assert store.find(a_traced_head(2, **{name.decode(): "1"})) is None
    assert store.find(a_traced_head(2, **{name.decode().upper(): "1"})) is None


def test_a_body_that_is_too_long_is_left_to_the_parser() -> None:
    store = known(a_traced_head(1))
    assert store.find(a_traced_head(2, MAX_BODY)) is not None
    assert [store.find(a_traced_head(2, MAX_BODY + 1)) for _ in range(3)] == [None] * 3


def test_a_head_with_too_much_of_it_is_left_to_the_parser() -> None:
    store = known(a_traced_head(1))
    assert store.find(a_traced_head(2, **{f"x{n}": "1" for n in range(100)})) is not None
    assert store.find(a_traced_head(2, **{f"x{n}": "1" for n in range(130)})) is None
    assert store.find(a_traced_head(2, token="x" * 7000)) is not None
    assert store.find(a_traced_head(2, token="x" * 9000)) is None


def test_paths_of_one_layout_keep_apart() -> None:
    lines = [b"POST /v1/models/m%d:predict HTTP/1.1" % number for number in range(9)]
    store = known(*(a_traced_head(1, line=line) for line in lines))
    for number in range(100):
        found = store.find(a_traced_head(number, line=lines[number % 9]))
        assert found is not None
        assert found[0].head.path == f"/v1/models/m{number % 9}:predict"


def test_callers_with_keys_of_one_length_share_a_layout_and_keep_apart() -> None:
    """The layout is the cheap way; by their lines each would be looked at."""
    store = no_heads("access")
    for key in ("a", "b"):
        assert parsed(a_traced_head(1, Authorization=f"Bearer {key}"), store, ConnectionLimits()) is not None
    found = [store.find(a_traced_head(number, Authorization=f"Bearer {'ab'[number % 2]}")) for number in range(2, 2000)]
    names = [each[0].head.permit and each[0].head.permit.principal.name for each in found if each]
    assert names == ["first", "second"] * 999
    assert len(store._layouts) < 20  # by the lengths of the numbers in them
    assert store.find(a_traced_head(2, Authorization="Bearer c")) is None
    expected = found[-2] and found[-2][-1]
    assert expected is not None
    assert [expected.read(a_traced_head(1996, Authorization=f"Bearer {key}")) is None for key in "abc"] == [
        False,
        True,
        True,
    ]


def test_heads_of_callers_in_turn_are_known_by_their_bytes() -> None:
    store = no_heads("access")
    heads = [a_traced_head(1, Authorization=f"Bearer {key}") for key in ("a", "b")]
    for head in heads:
        assert parsed(head, store, ConnectionLimits()) is not None
    for _ in range(3):
        found = [store.find(head) for head in heads]
    assert list(store._same) == heads
    assert list(store._same.values()) == found


@pytest.mark.parametrize("model", ["m", ""])
def test_heads_that_differ_in_their_credentials_ask_for_the_same_if_they_name_the_model(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which model is the default one may depend on who asks."""
    monkeypatch.setattr(Protocol, "needs", lambda *_: Need(Permission.INFER, model))
    store = no_heads("access")

    def alike(key: str, **more: str) -> object:
        found = parsed(a_traced_head(1, Authorization=f"Bearer {key}", **more), store, ConnectionLimits())
        assert found is not None
        return found[0].head.alike

    assert (alike("a") is alike("b")) == bool(model)
    assert alike("a") is alike("a")
    assert alike("a") is not alike("a", Accept="text/html")


def test_what_has_no_valid_credential_is_not_learnt() -> None:
    store = no_heads("access")
    for number in range(100):
        assert parsed(a_traced_head(1, Authorization=f"Bearer {number}"), store, ConnectionLimits()) is None
    assert [len(each) for each in (store.fast_path._heads, store._meanings, store._alike)] == [0, 0, 0]


# --- what protocols read ---


class Watched(RequestHead):
    """Remembers which fields are asked for."""

    asked: set[bytes]

    def header(self, name: bytes) -> bytes | None:
        self.asked.add(name)
        return super().header(name)


@pytest.mark.parametrize("case", CASES)
def test_protocols_read_no_other_fields_of_a_request_to_compute(case: str) -> None:
    async def main() -> None:
        world = World(True)
        head = HeadParser(ConnectionLimits())
        head.feed(CASES[case])
        path, _, query = head.target.decode().partition("?")
        protocol = world._find(path) if path.startswith("/v") else None
        if not head.usual or protocol is None or not protocol.computes("POST", path):
            return
        watched = Watched("POST", path, query.encode(), head.headers)
        watched.asked = set()
        body = head.raw[head.end :]
        protocol.begin_coalesced(watched, [body, body], fake_time())
        with suppress(Exception):  # whatever a case has wrong, something was asked before
            protocol.begin(Exchange(watched, fake_time()), body)
        assert watched.asked <= READ_FIELDS

    run_in_fake_time(main())


# --- through a connection ---


def traced(number: int, body: bytes) -> bytes:
    headers = {"traceparent": f"00-{number:032x}-{number:016x}-01", "x-request-id": f"{number:08x}"}
    return request(body=body, headers=headers)


def test_a_traced_request_is_answered_alike_wherever_it_is_cut() -> None:
    body = json.dumps(ROW).encode()
    second = traced(2, body.replace(b"1.0", b"7.0"))

    async def main() -> None:
        for at in range(len(second) + 1):
            world = World(True)
            await world.hear(traced(1, body), 2 * COMPUTE_S, second[:at], second[at:], 2 * COMPUTE_S)
            await world.hear(traced(3, body) + traced(4, body), 4 * COMPUTE_S)
            assert [json.loads(text)["predictions"] for _, _, text in world.replies()] == [
                [[2.0, 4.0]], [[14.0, 4.0]], [[2.0, 4.0]], [[2.0, 4.0]]
            ]  # fmt: skip

    run_in_fake_time(main())


@pytest.mark.parametrize("case", RFC_CASES, ids=str)
def test_a_request_ends_where_the_rfc_says_though_heads_like_it_are_known(case: Any) -> None:
    body = json.dumps(ROW).encode()
    sent = case.sent(PREDICT, body)
    world = played(True, [traced(1, body), 2.0, traced(2, body), 2.0, request(), 2.0, request(), 2.0, sent])
    assert [status for status, _, _ in world.replies()] == [200] * 4 + list(case.statuses)


# --- bounds ---


def sizes(store: KnownHeads) -> list[int]:
    caches = store._same, store._meanings, store._layouts, store._kinds, store._alike, store.fast_path._heads
    return [len(each) for each in caches]


def test_ever_new_values_of_fields_that_are_read_fill_no_cache_beyond_its_bound() -> None:
    store = known(a_traced_head(1))
    for number in range(1500):
        heads = [
            a_traced_head(number, **{"Content-Type": f"text/{number}", f"n{number}": "x" * (number % 700)}),
            a_traced_head(number, line=b"POST /v1/models/m%d:predict HTTP/1.1" % number),
            a_traced_head(number, Accept="x" * 3000),
        ]
        for head in heads * 3:
            if store.find(head) is None:
                parsed(head, store, ConnectionLimits())
    bounds = [MAX_HEADS, MAX_HEADS, known_heads._MAX_LAYOUTS, known_heads._MAX_NAMES, MAX_HEADS, MAX_HEADS]
    assert all(size <= bound for size, bound in zip(sizes(store), bounds, strict=True))


def test_ever_new_requests_with_credentials_fill_no_cache_beyond_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Protocol, "needs", lambda *_: Need(Permission.INFER, "m"))
    store = no_heads("access")
    for number in range(MAX_HEADS + 50):
        head = a_traced_head(1, **{"Content-Type": f"text/{number}", "Authorization": "Bearer a"})
        assert parsed(head, store, ConnectionLimits()) is not None
    assert [len(each) for each in (store.fast_path._alike, store.fast_path._heads)] == [MAX_HEADS, MAX_HEADS]


def test_heads_that_come_once_do_not_push_out_those_that_repeat() -> None:
    store = known(a_traced_head(1))
    for _ in range(3):
        store.find(a_traced_head(1))
    for number in range(5000):
        assert store.find(a_traced_head(number)) is not None
    assert a_traced_head(1) in store._same
    assert len(store._same) == 1
