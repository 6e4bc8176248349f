"""The picture of throughput against latency: an SVG that every browser shows, drawn without any library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from app.bench.open_loop import OpenLoopResult

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 420, 70, 20, 40, 50

#: By quantile.
_COLOURS = {0.5: "#1b9e77", 0.99: "#d95f02"}


def draw(loads: Sequence[OpenLoopResult], target_p99_ms: float, title: str) -> str:
    """An SVG: rates on the x axis, latencies (p50, p99) on a logarithmic y axis, the target as a dashed line.

    Infinite latencies are not drawn.
    """
    ordered = sorted(loads, key=lambda load: load.rate)
    drawn = {q: [(load.rate, ms) for load in ordered if math.isfinite(ms := 1e3 * load.latency_s(q))] for q in _COLOURS}
    latencies = [ms for pairs in drawn.values() for _, ms in pairs] + [target_p99_ms]
    scale = _Scale(max((load.rate for load in ordered), default=1.0), min(latencies), max(latencies))
    parts = [*_frame(scale, title), *_line(scale, target_p99_ms)]
    for place, (q, pairs) in enumerate(drawn.items()):
        parts += _series(scale, q, pairs, place)
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


def _series(scale: _Scale, q: float, pairs: Sequence[tuple[float, float]], place: int) -> list[str]:
    colour = _COLOURS[q]
    spots = [(scale.x(rate), scale.y(ms)) for rate, ms in pairs]
    line = " ".join(f"{x},{y}" for x, y in spots)
    dots = [f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>' for x, y in spots]
    legend = f'<text x="{_LEFT + 10 + 50 * place}" y="{_TOP + 4}" fill="{colour}">● p{100 * q:g}</text>'
    return [f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>', *dots, legend]
