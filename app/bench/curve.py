"""The picture of throughput against latency: an SVG that every browser shows, drawn without any library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 420, 70, 20, 40, 50
_COLOURS = {"p50": "#1b9e77", "p99": "#d95f02"}


@dataclass(frozen=True, slots=True)
class RatePoint:
    """The result of one rate, for people. Rates are requests a second; an infinite latency is not drawn.

    `failures` are the most frequent failures in words; `late_p99_ms` is the lateness of the generator itself,
    `held_back` the share of the requests that waited for one of its connections.
    """

    rate: float
    answered_rate: float
    p50_ms: float
    p99_ms: float
    failed: int
    late_p99_ms: float
    good: bool
    failures: str = ""
    held_back: float = 0.0


def draw(points: Sequence[RatePoint], target_p99_ms: float, title: str) -> str:
    """An SVG: rates on the x axis, latencies (p50, p99) on a logarithmic y axis, the target as a dashed line."""
    ordered = sorted(points, key=lambda point: point.rate)
    drawn = {
        name: [(point.rate, ms) for point in ordered if math.isfinite(ms := getattr(point, f"{name}_ms"))]
        for name in _COLOURS
    }
    latencies = [ms for pairs in drawn.values() for _, ms in pairs] + [target_p99_ms]
    scale = _Scale(max((point.rate for point in ordered), default=1.0), min(latencies), max(latencies))
    parts = [*_frame(scale, title), *_line(scale, target_p99_ms)]
    for place, (name, pairs) in enumerate(drawn.items()):
        parts += _series(scale, name, pairs, place)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


class _Scale:
    def __init__(self, most_rate: float, least_ms: float, most_ms: float) -> None:
        self.most_rate = most_rate
        self.low = math.floor(math.log10(max(least_ms, 1e-3)))
        self.high = max(self.low + 1, math.ceil(math.log10(max(most_ms, 1e-3))))

    def x(self, rate: float) -> float:
        return round(_LEFT + rate / self.most_rate * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, ms: float) -> float:
        share = (math.log10(max(ms, 1e-3)) - self.low) / (self.high - self.low)
        return round(_HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM), 1)


def _frame(scale: _Scale, title: str) -> list[str]:
    parts = [f'<text x="{_LEFT}" y="22" font-size="14">{escape(title)}</text>']
    for exponent in range(scale.low, scale.high + 1):
        ms = 10.0**exponent
        y = scale.y(ms)
        parts.append(f'<path d="M{_LEFT} {y}H{_WIDTH - _RIGHT}" stroke="#dddddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{ms:g} ms</text>')
    for fifth in range(6):
        rate = scale.most_rate * fifth / 5
        parts.append(f'<text x="{scale.x(rate)}" y="{_HEIGHT - 28}" text-anchor="middle">{rate:,.0f}</text>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 8}" text-anchor="middle">requests a second</text>')
    return parts


def _line(scale: _Scale, target_p99_ms: float) -> list[str]:
    y = scale.y(target_p99_ms)
    return [
        f'<path d="M{_LEFT} {y}H{_WIDTH - _RIGHT}" stroke="#7570b3" stroke-dasharray="6 4"/>',
        f'<text x="{_WIDTH - _RIGHT}" y="{y - 5}" text-anchor="end" fill="#7570b3">target {target_p99_ms:g} ms</text>',
    ]


def _series(scale: _Scale, name: str, pairs: Sequence[tuple[float, float]], place: int) -> list[str]:
    colour = _COLOURS[name]
    spots = [(scale.x(rate), scale.y(ms)) for rate, ms in pairs]
    line = " ".join(f"{x},{y}" for x, y in spots)
    dots = [f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>' for x, y in spots]
    legend = f'<text x="{_LEFT + 10 + 50 * place}" y="{_TOP + 4}" fill="{colour}">● {name}</text>'
    return [f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>', *dots, legend]
