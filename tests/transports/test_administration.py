import pytest

from app.core.errors import Forbidden
from app.transports.administration import Administration

ALLOWED = Administration(allowed=True)
HOST = (b"host", b"ferry:8501")


def test_it_is_off_unless_the_setting_says_otherwise() -> None:
    for rule in (Administration(), Administration.of("none", 0), Administration.of("none", 7)):
        with pytest.raises(Forbidden, match="the setting model_control=explicit lets"):
            rule.check_grpc()
        with pytest.raises(Forbidden, match="the setting model_control=explicit lets"):
            rule.check_http([HOST], 7)
    Administration.of("explicit", 0).check_grpc()
    Administration.of("explicit", 0).check_http([HOST], 8501)


def test_with_a_port_of_its_own_it_is_answered_there_alone() -> None:
    rule = Administration.of("explicit", 7)
    rule.check_http([HOST], 7)
    with pytest.raises(Forbidden, match=r"on port 7 only \(setting admin_port\)"):
        rule.check_http([HOST], 8501)
    with pytest.raises(Forbidden, match="over HTTP on port 7 only"):
        rule.check_grpc()


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"sec-fetch-site", b"none")],
        [(b"sec-fetch-site", b"same-origin")],
        [(b"origin", b"http://ferry:8501")],
        [(b"origin", b"HTTP://Ferry:8501"), (b"sec-fetch-site", b"same-origin")],
        [(b"origin", b"https://ferry.example"), (b"sec-fetch-site", b"same-origin")],  # a proxy changed Host
    ],
)
def test_clients_that_are_no_web_page_and_pages_of_this_server_may(headers: list[tuple[bytes, bytes]]) -> None:
    ALLOWED.check_http([HOST, *headers], 8501)


@pytest.mark.parametrize(
    "headers",
    [
        [(b"sec-fetch-site", b"cross-site")],
        [(b"sec-fetch-site", b"same-site")],  # another port or subdomain is another owner
        [(b"sec-fetch-site", b"")],
        [(b"origin", b"http://page.example")],
        [(b"origin", b"http://ferry:8502")],
        [(b"origin", b"null")],
        [(b"origin", b"http://ferry:8501"), (b"sec-fetch-site", b"cross-site")],
    ],
)
def test_web_pages_of_other_sites_may_not(headers: list[tuple[bytes, bytes]]) -> None:
    """A page may send such a POST to any address that its user's browser reaches (a "simple request" of Fetch)."""
    with pytest.raises(Forbidden, match="A web page of another site"):
        ALLOWED.check_http([HOST, *headers], 8501)


def test_a_page_without_a_host_to_compare_may_not() -> None:
    with pytest.raises(Forbidden):
        ALLOWED.check_http([(b"origin", b"http://page.example")], 8501)
