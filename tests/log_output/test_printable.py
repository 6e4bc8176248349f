"""Labels that come from names of folders."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from app.log_output.printable import printable_page


def test_control_characters_of_labels_are_escaped_and_the_page_is_read_as_before() -> None:
    registry = CollectorRegistry()
    gauge = Gauge("g", "help", ["model"], registry=registry)
    for model in ("m\x1b[31m", "two\nlines", "\u202ex", "back\\x1b", "ä 日"):
        gauge.labels(model).set(1)
    page = printable_page(generate_latest(registry))
    assert b"\x1b" not in page
    assert all(line.isprintable() for line in page.decode().split("\n"))
    (family,) = text_string_to_metric_families(page.decode())
    read = [sample.labels["model"] for sample in family.samples]
    assert read == [r"m\x1b[31m", "two\nlines", r"\u202ex", r"back\x1b", "ä 日"]


def test_a_page_without_them_is_the_same() -> None:
    page = b'a{model="m"} 1.0\n'
    assert printable_page(page) is page
