import pytest

from app.config.settings import Settings
from app.core.errors import Forbidden
from app.transports.administration import Administration

ALLOWED = Administration(allowed=True)
HOST = (b"host", b"ferry:8501")


def test_it_is_off_unless_the_setting_says_otherwise() -> None:
    for rule in (Administration(), Administration.of(Settings())):
        with pytest.raises(Forbidden, match="the setting model_control=explicit lets"):
            rule.check_grpc()
        with pytest.raises(Forbidden, match="the setting model_control=explicit lets"):
            rule.check_http([HOST])
    explicit = Administration.of(Settings(model_control="explicit"))
    explicit.check_grpc()
    explicit.check_http([HOST])


def page(host: str, **headers: str) -> list[tuple[bytes, bytes]]:
    """What a browser sends for a page of that host: it is the same site."""
    said = {"host": host, "origin": f"http://{host}", **headers}
    return [(name.replace("_", "-").encode(), value.encode()) for name, value in said.items()]


@pytest.mark.parametrize(
    "headers",
    [
        page("page.example:8501"),
        page("page.example:8501", sec_fetch_site="same-origin"),
        page("PAGE.example"),
        page("localhost.page.example:8501"),
        page("127.0.0.1.page.example:8501"),
        page("page.example.:8501"),
        [(b"host", b"page.example:8501"), (b"sec-fetch-site", b"same-origin")],
    ],
)
def test_a_page_whose_name_was_made_to_mean_this_server_may_not(headers: list[tuple[bytes, bytes]]) -> None:
    """Its owner lets the name resolve to another server first and to this one later (DNS rebinding)."""
    with pytest.raises(Forbidden, match=r"in the setting admin_hosts"):
        ALLOWED.check_http(headers)
    rule = Administration.of(Settings(model_control="explicit", admin_hosts=["ferry.example"]))
    with pytest.raises(Forbidden, match=r"in the setting admin_hosts"):
        rule.check_http(headers)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8501", "10.1.2.3", "[::1]:8501", "[fd00::5]", "localhost:8501", "a.localhost", "ferry:8501"]
)
def test_pages_of_addresses_and_of_names_that_nobody_can_buy_may(host: str) -> None:
    ALLOWED.check_http(page(host))


@pytest.mark.parametrize("host", ["ferry.example:8501", "FERRY.example"])
def test_pages_of_names_that_the_setting_lists_may(host: str) -> None:
    Administration.of(Settings(model_control="explicit", admin_hosts=["Ferry.example"])).check_http(page(host))


def test_a_client_that_is_no_browser_may_use_any_name_of_this_server() -> None:
    ALLOWED.check_http([(b"host", b"ferry.default.svc.cluster.local:8501")])


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
    ALLOWED.check_http([HOST, *headers])


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
        ALLOWED.check_http([HOST, *headers])


def test_a_page_without_a_host_to_compare_may_not() -> None:
    with pytest.raises(Forbidden):
        ALLOWED.check_http([(b"origin", b"http://page.example")])
