from __future__ import annotations

import pytest

from app.protocols.open_inference.routes import Action, NoSuchRoute, Route, audience_of, find_route
from app.transports.http.audience import Audience


@pytest.mark.parametrize(
    ("method", "path", "route"),
    [
        ("GET", "/v2", Route(Action.SERVER)),
        ("GET", "/%762", Route(Action.SERVER)),
        ("POST", "/v2/m%6Fdels/%6d/%69nfer", Route(Action.INFER, "m")),
        ("GET", "/v2/", Route(Action.SERVER)),
        ("GET", "/v2/health/live", Route(Action.LIVE)),
        ("GET", "/v2/health/ready", Route(Action.READY)),
        ("GET", "/v2/models/m", Route(Action.METADATA, "m")),
        ("GET", "/v2/models/m/", Route(Action.METADATA, "m")),
        ("GET", "/v2/models/a%20b%2Fc/versions/12", Route(Action.METADATA, "a b/c", "12")),
        ("GET", "/v2/models/m/ready", Route(Action.MODEL_READY, "m")),
        ("GET", "/v2/models/m/versions/1/ready", Route(Action.MODEL_READY, "m", "1")),
        ("POST", "/v2/models/m/infer", Route(Action.INFER, "m")),
        ("POST", "/v2/models/m/versions/1/infer", Route(Action.INFER, "m", "1")),
        ("GET", "/v2/models/m/config", Route(Action.CONFIG, "m")),
        ("GET", "/v2/models/m/versions/x/config", Route(Action.CONFIG, "m", "x")),
        ("GET", "/v2/models/stats", Route(Action.STATISTICS)),
        ("GET", "/v2/models/m/stats", Route(Action.STATISTICS, "m")),
        ("GET", "/v2/models/m/versions/1/stats", Route(Action.STATISTICS, "m", "1")),
        ("POST", "/v2/repository/index", Route(Action.INDEX)),
        ("POST", "/v2/repository/models/m/load", Route(Action.LOAD, "m")),
        ("POST", "/v2/repository/models/m/unload", Route(Action.UNLOAD, "m")),
        ("GET", "/v2/systemsharedmemory/status", Route(Action.MEMORY_STATUS)),
        ("GET", "/v2/systemsharedmemory/region/r/status", Route(Action.MEMORY_STATUS, "r")),
        ("POST", "/v2/systemsharedmemory/region/r/register", Route(Action.MEMORY_REGISTER, "r")),
        ("POST", "/v2/systemsharedmemory/region/r/unregister", Route(Action.MEMORY_UNREGISTER, "r")),
        ("POST", "/v2/systemsharedmemory/unregister", Route(Action.MEMORY_UNREGISTER)),
        ("GET", "/v2/cudasharedmemory/status", Route(Action.CUDA_STATUS)),
        ("GET", "/v2/cudasharedmemory/region/r/status", Route(Action.CUDA_STATUS, "r")),
        ("POST", "/v2/cudasharedmemory/region/r/register", Route(Action.CUDA_REGISTER, "r")),
        ("POST", "/v2/cudasharedmemory/region/r/unregister", Route(Action.CUDA_UNREGISTER, "r")),
        ("POST", "/v2/cudasharedmemory/unregister", Route(Action.CUDA_UNREGISTER)),
    ],
)
def test_routes(method, path, route):
    assert find_route(method, path) == route


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v2", "GET"),
        ("GET", "/v2/models/m/infer", "POST"),
        ("DELETE", "/v2/models/m", "GET"),
        ("POST", "/v2/models/stats", "GET"),
        ("GET", "/v2/repository/index", "POST"),
        ("GET", "/v2/models", None),
        ("POST", "/v2/models/m/predict", None),
        ("GET", "/v2/models/a/b", None),
        ("GET", "/v2//models/m", None),
        ("POST", "/v2/systemsharedmemory/register", None),
        ("GET", "/v22", None),
        ("POST", "/v2/models/m%2Finfer", "GET"),
        ("POST", "/v2/models/m/%69nf%2565r", None),
    ],
)
def test_unknown_paths_have_no_route(method, path, allowed):
    with pytest.raises(NoSuchRoute) as error:
        find_route(method, path)
    assert error.value.allowed == ({allowed} if allowed else set())
    assert str(error.value) == f"{'Method not allowed' if allowed else 'Not found'}: {method} {path}"


def test_an_encoded_path_is_for_whom_it_is_as_it_is() -> None:
    assert audience_of("/v2/repository/models/m/l%6Fad") is Audience.OPERATORS
    assert audience_of("/v2/models/m/%69nfer") is Audience.CALLERS
