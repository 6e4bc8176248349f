from xml.etree import ElementTree

from app.bench.curve import draw
from app.bench.open_loop import OpenLoopResult

SVG = "{http://www.w3.org/2000/svg}"


def read(picture: str) -> ElementTree.Element:
    return ElementTree.fromstring(picture)  # noqa: S314 - it is our own


def point(rate: float, p50_ms: float = 1.0, p99_ms: float = 5.0) -> OpenLoopResult:
    return OpenLoopResult(rate, 1.0, 3, [p50_ms / 1e3, p50_ms / 1e3, p99_ms / 1e3])


def test_every_point_is_drawn_from_left_to_right() -> None:
    root = read(draw([point(200), point(100, 0.5, 2), point(400)], 50, "digits & <more>"))
    assert len(root.findall(f"{SVG}circle")) == 6
    xs = [float(circle.attrib["cx"]) for circle in root.findall(f"{SVG}circle")][:3]
    assert xs == sorted(xs)
    assert "digits & <more>" in [text.text for text in root.findall(f"{SVG}text")]


def test_higher_latency_stands_higher() -> None:
    root = read(draw([point(100, 1, 1000)], 50, ""))
    p50, p99 = (float(circle.attrib["cy"]) for circle in root.findall(f"{SVG}circle"))
    assert p99 < p50


def test_what_never_came_is_left_out() -> None:
    root = read(draw([point(100), point(200, 1.0, float("inf"))], 50, ""))
    assert len(root.findall(f"{SVG}circle")) == 3
    assert "inf" not in draw([point(100, float("inf"), float("inf"))], 50, "")


def test_nothing_tried_is_still_a_picture() -> None:
    assert read(draw([], 50, "")).tag == f"{SVG}svg"
