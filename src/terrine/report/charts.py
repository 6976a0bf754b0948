"""Drawings as inline SVG, in a wide and a narrow shape each: the page's CSS shows the one that fits and colors it.

They take public numbers and words; every word is escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from terrine.accounting.curves import round_up

_PRIVATE = 5  # the first five steps stay with the owner
_LETTER = 8  # at most, in pixels, of a digit of 13 pixels
_POINTS = 240  # more points would make the file larger, but not the line finer


class Way(NamedTuple):
    """How private data become a student, in seven steps.

    Attributes:
        crosses: what alone crosses the line between the fifth step and the sixth.
        meets: the step that the public rows go to, beside the student; ``there``: what it does with them.
        lane: the same in a word, where there is little room.
    """

    steps: tuple[str, ...]
    crosses: str
    meets: int
    there: str
    lane: str
    said: str


BY_TEACHERS = Way(
    steps=("Private data", "Shares", "Teachers", "Votes", "Mechanism", "Answers", "Student"),
    crosses="only noisy winners",
    meets=2,
    there="the teachers vote on these rows",
    lane="questions",
    said="The teachers vote on public rows ({public}), and the student learns on the same rows. The first five steps "
    "stay with the owner. Only noisy winners cross the line between mechanism and answers.",
)
BY_PROBE = Way(
    steps=("Private data", "Features", "Gradients", "Sums", "Noise", "Probe", "Student"),
    crosses="only noisy sums",
    meets=1,
    there="features are made from these rows",
    lane="features",
    said="What features are is learned from public rows ({public}), and the student learns on the same rows, which the "
    "probe labels. The first five steps stay with the owner. Only noisy sums cross the line between noise and probe.",
)


def flow(notes: Sequence[str], public: str, *, way: Way = BY_TEACHERS) -> str:
    """The steps from private data to a student, with the line that only noisy winners cross.

    Args:
        notes: a few words for each of the seven steps, from the private data to the student.
        public: a few words on the public rows.
        way: the steps, and what crosses the line.
    """
    about = (
        "From left to right, or top to bottom: "
        + "; ".join(f"{step} ({note})" for step, note in zip(way.steps, notes, strict=True))
        + f". {way.said.format(public=public)}"
    )
    return _wide_flow(notes, public, about, way) + _narrow_flow(notes, public, about, way)


def spending(queries: Sequence[float], epsilon: Sequence[float], *, limit: float) -> str:
    """Epsilon so far after each question, below the line of the guarantee."""
    return "".join(
        _spending(queries, epsilon, limit=limit, shape=shape, width=width, height=height)
        for shape, width, height in (("wide", 760, 320), ("narrow", 350, 270))
    )


def ticks(top: float, most: int) -> list[float]:
    """Round numbers from 0 to ``top`` in at most ``most`` steps, each 1, 2 or 5 times a power of ten."""
    if not top > 0:
        return [0.0]
    rough = top / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((power * times for times in (1, 2, 5, 10) if power * times >= rough * (1 - 1e-9)), power * 10)
    return [float(f"{step * i:.12g}") for i in range(int(top / step * (1 + 1e-9)) + 1)]


def _wide_flow(notes: Sequence[str], public: str, about: str, way: Way) -> str:
    width, gap, top, height = 110, 32, 78, 74
    left = [14 + i * (width + gap) for i in range(len(way.steps))]
    right, line = left[-1] + width + 14, left[_PRIVATE] - gap / 2
    middle, bottom, rows = top + height / 2, top + height, 212
    parts = [
        _hatched("flow-wide-hatch", 0, 34, line, 240),
        _text(14, 56, "PRIVATE SIDE: stays with the owner", "zone"),
        _text(right - 8, 56, "PUBLIC SIDE: may be shown", "zone end"),
        f'<path class="border" d="M{line} 24V284"/>',
        _text(line, 14, f"{way.crosses} cross here", "paid mid"),
    ]
    for i, (x, step, note) in enumerate(zip(left, way.steps, notes, strict=True)):
        parts.append(_box(x, top, width, height, step, note, "key" if i == _PRIVATE - 1 else ""))
        if i:
            parts.append(_arrow((x - gap + 3, middle), (x - 4, middle)))
    teachers, student = left[way.meets] + width / 2, left[-1] + width / 2
    parts += [
        _box(left[_PRIVATE], rows, right - left[_PRIVATE] - 14, 54, "Public rows", public, ""),
        _arrow((left[_PRIVATE] - 3, rows + 27), (teachers, rows + 27), (teachers, bottom + 4)),
        _text(teachers + 14, rows + 20, way.there, "aside"),
        _arrow((student, rows - 3), (student, bottom + 4)),
    ]
    return _svg("flow", "wide", right, 284, "How private data become a public student", about, parts)


def _narrow_flow(notes: Sequence[str], public: str, about: str, way: Way) -> str:
    x, width, height, gap, room = 14, 172, 56, 24, 58
    tops = [40 + i * (height + gap) + (room - gap if i >= _PRIVATE else 0) for i in range(len(way.steps))]
    line = tops[_PRIVATE] - room / 2
    total, right, lane = tops[-1] + height + 14, 350, 328
    parts = [
        _hatched("flow-narrow-hatch", 0, 0, right, line),
        _text(x, 24, "PRIVATE SIDE: stays with the owner", "zone"),
        f'<path class="border" d="M0 {line}H{right}"/>',
        _text(lane - 10, line - 9, f"{way.crosses} cross", "paid end"),
        _text(lane - 10, line + 20, "PUBLIC SIDE: may be shown", "zone end"),
    ]
    for i, (y, step, note) in enumerate(zip(tops, way.steps, notes, strict=True)):
        parts.append(_box(x, y, width, height, step, note, "key" if i == _PRIVATE - 1 else ""))
        if i:
            from_y = y - (room if i == _PRIVATE else gap) + 3
            parts.append(_arrow((x + width / 2, from_y), (x + width / 2, y - 4)))
    rows = tops[-1]
    parts += [
        _box(x + width + 32, rows, right - x - width - 34, height, "Public rows", public, ""),
        _arrow((x + width + 29, rows + height / 2), (x + width + 4, rows + height / 2)),
        _arrow((lane, rows - 3), (lane, tops[way.meets] + height / 2), (x + width + 4, tops[way.meets] + height / 2)),
        _text(lane - 8, tops[3] + height / 2 + 4, way.lane, "aside end"),
    ]
    return _svg("flow", "narrow", right, total, "How private data become a public student", about, parts)


def _spending(
    queries: Sequence[float], epsilon: Sequence[float], *, limit: float, shape: str, width: int, height: int
) -> str:
    most = max(limit, max(epsilon, default=0.0)) * 1.12 or 1.0
    last = max(max(queries, default=0), 1)
    along = [
        (tick, f"{tick:,.0f}" if tick == int(tick) else f"{tick:g}")
        for tick in ticks(last, 8 if shape == "wide" else 4)
    ]
    half = _LETTER / 2 * len(along[-1][1])  # the last label stands around the axis' end, and must not be cut off
    left, right, top, bottom = 46, width - max(14, half + 2), 44, height - 46

    def at(query: float, value: float) -> tuple[float, float]:
        return left + (right - left) * query / last, bottom - (bottom - top) * value / most

    parts = [_text(2, 16, "ε so far, worst case", "label")]
    for tick in ticks(most, 5):
        y = at(0, tick)[1]
        parts.append(f'<path class="grid" d="M{left} {y:.1f}H{right}"/>')
        parts.append(_text(left - 8, y + 4, f"{tick:g}", "tick end"))
    for tick, words in along:
        parts.append(_text(at(tick, 0)[0], bottom + 20, words, "tick mid"))
    parts.append(_text(right, height - 6, "questions put to the teachers", "label end"))
    every = max(1, math.ceil(len(queries) / _POINTS))
    shown = sorted({*range(0, len(queries), every), len(queries) - 1})
    points = [at(queries[i], epsilon[i]) for i in shown]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts.append(f'<polygon class="under" points="{points[0][0]:.1f},{bottom} {line} {points[-1][0]:.1f},{bottom}"/>')
    parts.append(f'<polyline class="spent" points="{line}"/>')
    parts.append(f'<circle class="dot" cx="{points[-1][0]:.1f}" cy="{points[-1][1]:.1f}" r="4"/>')
    y = at(0, limit)[1]
    parts.append(f'<path class="limit" d="M{left} {y:.1f}H{right}"/>')
    parts.append(_text(left + 6, y - 8, f"the guarantee: ε = {round_up(limit)}", "limit-label"))
    parts.append(f'<path class="axis" d="M{left} {bottom}H{right}"/>')
    about = (
        f"A line that rises from {round_up(epsilon[0])} to {round_up(epsilon[-1])} over {queries[-1]:,} questions, "
        f"below a dashed line at the guarantee, {round_up(limit)}."
    )
    return _svg("spending", shape, width, height, "Worst-case cost after each question", about, parts)


def _svg(name: str, shape: str, width: float, height: float, title: str, about: str, parts: list[str]) -> str:
    ids = f"{name}-{shape}"
    return (
        f'<svg class="{name} {shape}" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-labelledby="{ids}-title {ids}-about"><title id="{ids}-title">{escape(title)}</title>'
        f'<desc id="{ids}-about">{escape(about)}</desc>{"".join(parts)}</svg>\n'
    )


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def _box(x: float, y: float, width: float, height: float, name: str, note: str, kind: str) -> str:
    room = int(width / 6.6)
    note = note if len(note) <= room else note[: room - 1] + "…"
    middle, center = y + height / 2, x + width / 2
    return (
        f'<rect class="box {kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'
        f"{_text(center, middle - 4, name, 'step mid')}{_text(center, middle + 15, note, 'aside mid')}"
    )


def _arrow(*points: tuple[float, float]) -> str:
    """Straight strokes, the last of them level or upright, with a head at its end."""
    (from_x, from_y), (x, y) = points[-2:]
    line = "L".join(f"{px:g} {py:g}" for px, py in points)
    if from_y == y:
        back = x - math.copysign(6, x - from_x)
        head = f"M{back:g} {y - 4:g}L{x:g} {y:g}L{back:g} {y + 4:g}"
    else:
        back = y - math.copysign(6, y - from_y)
        head = f"M{x - 4:g} {back:g}L{x:g} {y:g}L{x + 4:g} {back:g}"
    return f'<path class="arrow" d="M{line}{head}"/>'


def _hatched(name: str, x: float, y: float, width: float, height: float) -> str:
    """A shaded area with a pattern, for those who see no shade."""
    return (
        f'<defs><pattern id="{name}" width="8" height="8" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><path class="hatch" d="M0 0V8"/></pattern></defs>'
        f'<rect class="shade" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>'
        f'<rect fill="url(#{name})" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>'
    )
