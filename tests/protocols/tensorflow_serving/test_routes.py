from __future__ import annotations

import pytest

from app.core.errors import InvalidRequest
from app.protocols.tensorflow_serving.routes import Action, Route, audience_of, find_route
from app.transports.http.audience import Audience

PREDICT, CLASSIFY, REGRESS = Action.PREDICT, Action.CLASSIFY, Action.REGRESS


@pytest.mark.parametrize(
    ("method", "path", "route"),
    [
        ("POST", "/v1/models/m:predict", Route(PREDICT, "m")),
        ("POST", "/V1/Models/M:PREDICT", Route(PREDICT, "M")),
        ("POST", "/v1/models/m:classify", Route(CLASSIFY, "m")),
        ("POST", "/v1/models/m/versions/7:regress", Route(REGRESS, "m", 7)),
        ("POST", "/v1/models/m/versions/00000123:predict", Route(PREDICT, "m", 123)),
        ("POST", "/v1/models/m/versions/0:predict", Route(PREDICT, "m", 0)),
        ("POST", f"/v1/models/m/versions/{'0' * 6000}9:predict", Route(PREDICT, "m", 9)),
        ("POST", "/v1/models/m/labels/stable:predict", Route(PREDICT, "m", None, "stable")),
        ("POST", "/v1/models/a%2Fb%20c/labels/x%3Ay:predict", Route(PREDICT, "a/b c", None, "x:y")),
        ("POST", "/v1/models/m%3Apredict", Route(PREDICT, "m")),
        ("POST", "/v1/models/m/versions/%37%3apredict%53tream", Route(Action.PREDICTSTREAM, "m", 7)),
        ("POST", "/%761/models/a%3Apredict%3Apredict", Route(PREDICT, "a:predict")),
        ("POST", "/v1/models/%256D:predict", Route(PREDICT, "%6D")),
        ("GET", "/v1/m%6Fdels/m%3Apredict", Route(Action.STATUS, "m:predict")),
        ("POST", "/%70redict", Route(PREDICT)),
        ("POST", "/predict", Route(PREDICT)),
        ("POST", "/v1/models/m:predictStream", Route(Action.PREDICTSTREAM, "m")),
        ("POST", "/v1/models/m/labels/stable:predictstream", Route(Action.PREDICTSTREAM, "m", None, "stable")),
        ("GET", "/v1/models/m", Route(Action.STATUS, "m")),
        ("GET", "/v1/models/m/versions/7", Route(Action.STATUS, "m", 7)),
        ("GET", "/v1/models/m/labels/stable", Route(Action.STATUS, "m", None, "stable")),
        ("GET", "/v1/models/m/metadata", Route(Action.METADATA, "m")),
        ("GET", "/v1/models/m/versions/7/Metadata", Route(Action.METADATA, "m", 7)),
        ("GET", "/v1/models", Route(Action.LIST)),
    ],
)
def test_known(method: str, path: str, route: Route) -> None:
    assert find_route(method, path) == route


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models/m:predict"),
        ("POST", "/v1/models/m/metadata"),
        ("POST", "/v1/models/m"),
        ("PUT", "/v1/models/m:predict"),
        ("HEAD", "/v1/models/m"),
        ("OPTIONS", "/v1/models/m:predict"),
        ("POST", "/v1/models/m:explain"),
        ("POST", "/v1/models/m:predict/"),
        ("POST", "/v1/models/m/versions/x:predict"),
        ("POST", "/v1/models/m/versions/٣:predict"),
        ("POST", "/v1/models/m/versions/1/labels/a:predict"),
        ("POST", "/v1/models/:predict"),
        ("GET", "/v1/models/"),
        ("GET", "/v1/foo"),
        ("GET", "/predict"),
        ("GET", "/v1/models/m:predictStream"),
        ("POST", "/v1/models/m:predict\n"),
        ("POST", "/v1/models%2Fm:predict"),
        ("POST", "/v1/models/m%253Apredict"),
        ("POST", "/v1/models/m%3Apredict%0A"),
    ],
)
def test_malformed(method: str, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        find_route(method, path)
    assert str(caught.value) == f"Malformed request: {method} {path}"


@pytest.mark.parametrize("version", ["9223372036854775808", "9" * 6000])
def test_a_version_beyond_int64(version: str) -> None:
    with pytest.raises(InvalidRequest, match=r"Failed to convert version: 9\d+ to numeric."):
        find_route("POST", f"/v1/models/m/versions/{version}:predict")
    assert find_route("GET", "/v1/models/m/versions/9223372036854775807").version == 2**63 - 1


def test_an_encoded_path_is_for_whom_it_is_as_it_is() -> None:
    assert audience_of("/v1/models/m%3apr%65dict") is audience_of("/%70redict") is Audience.CALLERS
