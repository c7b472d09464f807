"""`python -m experiments.pipeline_figure`: the drawing of the pipeline, docs/pipeline.svg.

Private records, shards, teachers that are trained together, votes, noise, answers, student, release: what is
private lies on the left, and only what passed the noise goes to the right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import tyro

from pate_jax.system import storage

ROOT = Path(__file__).parents[1]
WIDTH, HEIGHT = 1000, 452
INK, SOFT, LINE = "#22303c", "#5b6b79", "#8a99a6"
PRIVATE, PUBLIC = "#c8553d", "#1b6ca8"
HALO = 'stroke="#ffffff" stroke-width="4" stroke-linejoin="round" paint-order="stroke"'
CLASSES = ("#1b6ca8", "#e3b23c", "#3f7d20", "#c8553d", "#6a4c93")
ROWS = (130, 176, 222, 268)  # middles of the four shards that are drawn, and of their teachers
MIDDLE = 199
BORDER = 566  # of what is private, across


def main(out: Path = ROOT / "docs/pipeline.svg") -> None:
    """Draw it.

    Args:
        out: the picture.
    """
    storage.write_bytes(out, drawing().encode())


def drawing() -> str:
    """The whole picture as SVG.

    >>> drawing().count("<svg"), drawing() == drawing()
    (1, True)
    """
    parts = [_zones(), _records(), _shards(), _teachers(), _votes(), _noise(), _answers(), _student()]
    parts += [_release(), _accountant(), _public_inputs(), _arrows()]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="Helvetica, Arial, DejaVu Sans, sans-serif">'
        "<title>From private records to a student that may be published</title>"
        f'<defs><marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0 0.6 L7 4 L0 7.4 Z" fill="{SOFT}"/></marker></defs>'
    )
    return head + "".join(parts) + "</svg>\n"


def _zones() -> str:
    """What stays with the owner, and what may go out."""
    return "".join(
        [
            _box(0, 0, WIDTH, HEIGHT, "#ffffff", "none", 14),
            _box(12, 12, BORDER - 18, 328, "#fdf3f0", "#f0cfc6", 12),
            _box(BORDER + 6, 12, WIDTH - BORDER - 18, 328, "#eff5fa", "#c9dcea", 12),
            _box(12, 352, 976, 88, "#eff5fa", "#c9dcea", 12),
            _text(28, 38, "private: stays with the owner", 15, PRIVATE, "start", bold=True),
            _text(972, 38, "may be published", 15, PUBLIC, "end", bold=True),
        ]
    )


def _records() -> str:
    """Labelled records as a block of squares, a colour for each class."""
    squares = [
        _box(30 + 14 * column, 152 + 14 * row, 11, 11, CLASSES[(3 * row + 2 * column + row * column) % 5])
        for row in range(7)
        for column in range(5)
    ]
    return "".join(squares) + _name(64, "records", "each labelled")


def _shards() -> str:
    """The same records in disjoint groups."""
    parts = []
    for shard, middle in enumerate(ROWS):
        parts.append(_box(141, middle - 18, 70, 36, "#ffffff", LINE, 6))
        parts += [
            _box(
                148 + 15 * column, middle - 12 + 14 * row, 11, 11, CLASSES[(shard + 2 * row + 3 * column) % 5]
            )
            for row in range(2)
            for column in range(4)
        ]
    return "".join(parts) + _name(176, "shards", "each record in one")


def _teachers() -> str:
    """One program around all nets."""
    parts = [_box(250, 102, 100, 194, "#ffffff", PRIVATE, 10, 'stroke-width="2"')]
    parts += [_net(268, middle, 64, 28, INK) for middle in ROWS]
    parts.append(_text(300, 91, "one batched program", 13, PRIVATE, bold=True))
    return "".join(parts) + _name(300, "teachers", "trained together")


def _votes() -> str:
    """How many teachers say each class, for one query."""
    heights, parts = (16, 96, 26, 8, 14), []
    for place, height in enumerate(heights):
        parts.append(_box(394 + 19 * place, 255 - height, 15, height, CLASSES[place]))
    parts.append(_rule(388, 255, 491, 255, LINE))
    parts.append(_text(440, 140, "for each query", 13, SOFT))
    return "".join(parts) + _name(440, "votes", "counts per class")


def _noise() -> str:
    """The bell of the noise, on the border."""
    at = [place / 12 for place in range(-30, 31)]
    bell = " ".join(f"{BORDER + 11.5 * x:.1f},{MIDDLE + 17 - 36 * math.exp(-x * x / 2):.1f}" for x in at)
    return "".join(
        [
            f'<circle cx="{BORDER}" cy="{MIDDLE}" r="42" fill="#fff" stroke="{PRIVATE}" stroke-width="2"/>',
            f'<polyline points="{bell}" fill="none" stroke="{PRIVATE}" stroke-width="2.5"/>',
            _rule(BORDER - 30, MIDDLE + 17, BORDER + 30, MIDDLE + 17, LINE),
            _text(BORDER, MIDDLE + 34, "+", 17, PRIVATE, bold=True),
            _name(BORDER, "noise", "on every count", HALO),
        ]
    )


def _answers() -> str:
    """The class with the most noisy votes, of each query."""
    parts = []
    for place, (colour, middle) in enumerate(zip((1, 0, 4, 1), ROWS, strict=True)):
        parts.append(_box(650, middle - 14, 62, 28, "#ffffff", LINE, 14))
        parts.append(_box(659, middle - 5.5, 11, 11, "#c3cdd5"))
        parts.append(_text(680.5, middle + 4.5, "→", 13, SOFT))
        parts.append(_box(692, middle - 5.5, 11, 11, CLASSES[colour if place else 1]))
    return "".join(parts) + _name(681, "answers", "the largest count")


def _student() -> str:
    """A larger net than a teacher's."""
    return _net(774, MIDDLE, 76, 92, PUBLIC) + _name(812, "student", "learns from answers")


def _release() -> str:
    """A sheet with the figure, and the student in it."""
    return "".join(
        [
            f'<path d="M899 147 h46 l16 16 v88 h-62 z" fill="#ffffff" stroke="{PUBLIC}" stroke-width="2"/>',
            f'<path d="M945 147 v16 h16" fill="none" stroke="{PUBLIC}" stroke-width="2"/>',
            _net(911, 192, 38, 30, PUBLIC),
            _text(930, 240, "ε, δ", 16, PUBLIC, bold=True),
            _name(930, "release", "with its figure"),
        ]
    )


def _accountant() -> str:
    """What counts the cost, from the noise and the number of queries alone."""
    return "".join(
        [
            _box(606, 62, 206, 46, "#ffffff", PUBLIC, 8, 'stroke-width="1.5"'),
            _text(709, 82, "accountant", 15, INK, bold=True),
            _text(709, 99, "same ε whatever the votes are", 12.5, SOFT),
        ]
    )


def _public_inputs() -> str:
    """Unlabelled squares along the bottom."""
    squares = [
        _box(250 + 14 * column, 386 + 14 * row, 11, 11, "#c3cdd5") for row in range(3) for column in range(52)
    ]
    return "".join(squares) + "".join(
        [
            _text(30, 400, "public inputs", 16, INK, "start", bold=True),
            _text(30, 419, "no labels, no secrets", 13, SOFT, "start"),
            _text(379, 375, "the teachers are asked about some", 13, SOFT, "start"),
            _text(756, 375, "the student sees all", 13, SOFT, "start"),
        ]
    )


def _arrows() -> str:
    """What goes where."""
    parts = [_arrow([(102, MIDDLE), (135, middle)]) for middle in ROWS]
    parts += [_arrow([(213, middle), (262, middle)]) for middle in ROWS]
    parts += [
        _arrow([(354, MIDDLE), (382, MIDDLE)]),
        _arrow([(496, MIDDLE), (518, MIDDLE)]),
        _arrow([(BORDER + 45, MIDDLE), (644, MIDDLE)]),
        _arrow([(716, MIDDLE), (766, MIDDLE)]),
        _arrow([(856, MIDDLE), (893, MIDDLE)]),
        _arrow([(BORDER, 154), (BORDER, 85), (600, 85)]),
        _arrow([(814, 85), (930, 85), (930, 141)]),
        _arrow([(368, 381), (368, 268), (356, 268)]),
        _arrow([(746, 381), (746, 245), (766, 245)]),
    ]
    return "".join(parts)


def _name(across: float, name: str, below: str, more: str = "") -> str:
    """The name of a stage, and a few words about it."""
    return (
        f"<g {more}>{_text(across, 316, name, 16, INK, bold=True)}{_text(across, 332, below, 12.5, SOFT)}</g>"
    )


def _net(left: float, middle: float, width: float, height: float, colour: str) -> str:
    """Layers of three, four and two units with all lines between them."""
    layers = [
        [(left + width * place / 2, middle + height * (unit / (count - 1) - 0.5)) for unit in range(count)]
        for place, count in enumerate((3, 4, 2))
    ]
    lines = [
        _rule(*start, *end, colour, 'stroke-opacity="0.35"')
        for before, after in pairwise(layers)
        for start in before
        for end in after
    ]
    radius = 2.6 + height / 40
    dots = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{colour}"/>'
        for one in layers
        for x, y in one
    ]
    return "".join(lines + dots)


def _box(
    left: float,
    top: float,
    width: float,
    height: float,
    fill: str,
    edge: str = "none",
    round_: float = 2,
    more: str = "",
) -> str:
    return (
        f'<rect x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="{round_:g}" '
        f'fill="{fill}" stroke="{edge}" {more}/>'
    )


def _rule(left: float, top: float, right: float, bottom: float, colour: str, more: str = "") -> str:
    return (
        f'<line x1="{left:.1f}" y1="{top:.1f}" x2="{right:.1f}" y2="{bottom:.1f}" stroke="{colour}" {more}/>'
    )


def _arrow(corners: Sequence[tuple[float, float]]) -> str:
    points = " ".join(f"{x:g},{y:g}" for x, y in corners)
    return (
        f'<polyline points="{points}" fill="none" stroke="{SOFT}" stroke-width="1.7" '
        'stroke-linejoin="round" marker-end="url(#tip)"/>'
    )


def _text(
    across: float,
    down: float,
    text: str,
    size: float,
    colour: str,
    anchor: str = "middle",
    *,
    bold: bool = False,
) -> str:
    weight = ' font-weight="600"' * bold
    return (
        f'<text x="{across:g}" y="{down:g}" font-size="{size:g}" fill="{colour}" '
        f'text-anchor="{anchor}"{weight}>{text}</text>'
    )


if __name__ == "__main__":
    tyro.cli(main, prog="experiments.pipeline_figure", description=__doc__)
