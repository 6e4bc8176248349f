"""traceparent and tracestate; the oracle is https://www.w3.org/TR/trace-context/."""

import pytest

from app.transports.trace_context import ParentSpan, parent_in_head, parent_span

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{SPAN}-01".encode()


def parent(value: bytes, *more: tuple[bytes, bytes]) -> ParentSpan | None:
    return parent_span([(b"traceparent", value), *more])


def test_the_example_of_the_standard() -> None:
    assert parent(SAMPLED) == ParentSpan(int(TRACE, 16), int(SPAN, 16), sampled=True)
    assert parent(SAMPLED[:-2] + b"00") == ParentSpan(int(TRACE, 16), int(SPAN, 16), sampled=False)


def test_of_the_flags_only_the_last_bit_says_sampled() -> None:
    found = [parent(SAMPLED[:-2] + flags) for flags in (b"02", b"03", b"ff", b"fe")]
    assert [each.sampled for each in found if each] == [False, True, True, False]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"00",
        SAMPLED.upper(),
        SAMPLED + b"-more",  # version 00 has four fields
        b"ff" + SAMPLED[2:],
        b"0x" + SAMPLED[2:],
        f"00-{'0' * 32}-{SPAN}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        f"00-{TRACE[1:]}-{SPAN}-01".encode(),
        f"00-{TRACE}-{SPAN}0-01".encode(),
        SAMPLED + b"\n",
        SAMPLED[:-1] + b"g",
        "00-٠af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01".encode(),
    ],
)
def test_what_is_malformed_is_ignored(value: bytes) -> None:
    assert parent(value) is None


def test_a_later_version_may_have_more_fields() -> None:
    assert parent(b"01" + SAMPLED[2:] + b"-more") == parent(SAMPLED)
    assert parent(b"01" + SAMPLED[2:] + b"more") is None


def test_two_of_it_are_malformed() -> None:
    assert parent(SAMPLED, (b"traceparent", SAMPLED)) is None


def test_the_state_is_passed_on_in_order_and_without_a_parent_it_is_nothing() -> None:
    found = parent(SAMPLED, (b"tracestate", b"a=1"), (b"tracestate", b"b=2,c=3"))
    assert found is not None
    assert found.state == "a=1,b=2,c=3"
    assert parent_span([(b"tracestate", b"a=1")]) is None


def test_a_long_state_is_left_out() -> None:
    assert parent(SAMPLED, (b"tracestate", b"a=" + 600 * b"1")) == parent(SAMPLED)


@pytest.mark.parametrize("name", ["traceparent", "Traceparent", "TraceParent", "TRACEPARENT"])
def test_in_a_head_its_name_is_in_any_case(name: str) -> None:
    head = f"POST / HTTP/1.1\r\nHost: x\r\n{name}: \t{SAMPLED.decode()} \r\ntracestate:a=1\r\n\r\n"
    assert parent_in_head(head.encode()) == parent(SAMPLED, (b"tracestate", b"a=1"))


def test_a_head_without_it_names_no_span() -> None:
    assert parent_in_head(b"POST /traceparent: HTTP/1.1\r\nHost: x\r\nX-Traceparent: " + SAMPLED + b"\r\n\r\n") is None


def test_in_a_head_what_is_not_sampled_is_seen_without_its_ids() -> None:
    def head(*values: bytes) -> bytes:
        return b"POST / HTTP/1.1\r\n" + b"".join(b"traceparent: " + each + b"\r\n" for each in values) + b"\r\n"

    unsampled = SAMPLED[:-2] + b"00"
    found = [parent_in_head(head(each)) for each in (unsampled, unsampled[:-2] + b"02", b"01" + unsampled[2:] + b"-00")]
    assert [each is not None and each.sampled for each in found] == [False] * 3
    assert None not in found
    assert parent_in_head(head(unsampled, unsampled)) is None
    assert parent_in_head(head(unsampled + b"-00")) is None
    assert parent_in_head(head(unsampled, SAMPLED)) is None


@pytest.mark.parametrize(
    "value",
    [
        f"00-{'g' * 32}-{SPAN}-00",
        f"00-{TRACE}-{'z' * 16}-00",
        f"00-{TRACE.upper()}-{SPAN}-00",
        f"00-{'0' * 32}-{SPAN}-00",
        f"00-{TRACE}-{'0' * 16}-00",
        f"00-{TRACE}{SPAN}----00",
    ],
)
def test_what_only_ends_as_an_unsampled_one_names_no_span(value: str) -> None:
    """Else whoever sends it decides that its request is never traced."""
    assert parent_in_head(f"POST / HTTP/1.1\r\ntraceparent: {value}\r\n\r\n".encode()) is None
    assert parent(value.encode()) is None
