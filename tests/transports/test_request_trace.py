"""Which requests are traced, and what their spans are called."""

import pytest

from app.transports.request_trace import Ended, RequestTrace, Tracing, route_of
from app.transports.trace_context import ParentSpan

ENDED = Ended("tensorflow_rest", "200", ("m", 1, "s"), 1.0, 2.0)


def test_the_flag_of_the_caller_is_obeyed_whatever_the_share() -> None:
    for share in (0.0, 1.0):
        tracing = Tracing(share, lambda _: None, chance=lambda: 0.5)
        assert tracing.begin(ParentSpan(1, 2, sampled=True)) is not None
        assert tracing.begin(ParentSpan(1, 2, sampled=False)) is None


def test_without_a_caller_chance_decides_by_the_share() -> None:
    chances = [0.0, 0.24, 0.25, 0.99]
    tracing = Tracing(0.25, lambda _: None, chance=iter(chances).__next__)
    assert [tracing.begin(None) is not None for _ in chances] == [True, True, False, False]


def test_chance_takes_no_more_than_so_many_a_second() -> None:
    now_s = 0.0
    tracing = Tracing(1.0, lambda _: None, 2, clock=lambda: now_s)

    def taken(requests: int) -> int:
        return sum(tracing.begin(None) is not None for _ in range(requests))

    assert taken(10) == 2
    now_s = 0.5
    assert taken(10) == 1
    now_s = 100.0
    assert taken(10) == 2
    assert tracing.begin(ParentSpan(1, 2, sampled=True)) is not None  # callers decide for themselves


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/v1/models/digits:predict", "/v1/models/{model}:predict"),
        ("/v1/models/digits/versions/12:predict", "/v1/models/{model}/versions/{version}:predict"),
        ("/v1/models/digits/labels/stable:classify", "/v1/models/{model}/labels/{label}:classify"),
        ("/v2/models/a%2Fb/versions/1/infer", "/v2/models/{model}/versions/{version}/infer"),
        ("/v2/models/models/infer", "/v2/models/{model}/infer"),
        ("/v2/systemsharedmemory/region/r/register", "/v2/systemsharedmemory/region/{region}/register"),
        ("/predict", "/predict"),
        ("/v1/m%6Fdels/digits%3Apredict", "/v1/models/{model}:predict"),
        ("/v1/models/any%3Aname", "/v1/models/{model}"),
    ],
)
def test_a_route_has_nothing_of_the_callers_choice(path: str, route: str) -> None:
    assert route_of(path) == route


def ended(protocol: str, code: str, error: str = "") -> RequestTrace:
    recorded: list[RequestTrace] = []
    trace = Tracing(1.0, recorded.append).begin(None)
    assert trace is not None
    trace.error = error
    if protocol == "http":
        trace.end_http("POST", "/v1/models/m:predict", ENDED._replace(code=code))
    else:
        trace.end_rpc("p.S/M", ENDED._replace(code=code))
    return recorded[0]


@pytest.mark.parametrize(("protocol", "code"), [("http", "500"), ("http", "503"), ("grpc", "INTERNAL")])
def test_what_the_server_is_at_fault_for_is_an_error(protocol: str, code: str) -> None:
    assert ended(protocol, code, "why").error == "why"
    assert ended(protocol, code).error == code
    assert ended(protocol, code).attributes["error.type"] == code


@pytest.mark.parametrize(
    ("protocol", "code"), [("http", "200"), ("http", "404"), ("grpc", "OK"), ("grpc", "NOT_FOUND")]
)
def test_what_the_client_is_at_fault_for_is_none(protocol: str, code: str) -> None:
    assert ended(protocol, code, "why").error == ""
    assert "error.type" not in ended(protocol, code).attributes


def test_a_path_that_is_no_route_gives_no_name() -> None:
    recorded: list[RequestTrace] = []
    trace = Tracing(1.0, recorded.append).begin(None)
    assert trace is not None
    trace.end_http("GET", "", ENDED._replace(code="404"))
    assert recorded[0].name == "GET"
    assert "http.route" not in recorded[0].attributes
