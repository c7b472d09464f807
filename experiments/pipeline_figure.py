"""`python -m experiments.pipeline_figure`: the drawing of the pipeline, docs/pipeline.svg.

Private records, shards, teachers that are trained together and votes lie in the upper row, which is private.
Only what passed the noise goes on to the lower row: answers, student, release. Its words can be read where it
is 370 pixels wide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import tyro

from pate_jax.system import storage

ROOT = Path(__file__).parents[1]
WIDTH, HEIGHT = 540, 566
INK, SOFT, LINE = "#22303c", "#5b6b79", "#8a99a6"
PRIVATE, PUBLIC = "#c8553d", "#1b6ca8"
CLASSES = ("#1b6ca8", "#e3b23c", "#3f7d20", "#c8553d", "#6a4c93")
SHARDS = (66, 100, 134, 168)  # middles of the four shards that are drawn, and of their teachers
PILLS = (352, 386, 420)  # of the answers
UPPER, LOWER = 117, 386  # middles of the two rows
BORDER = 249  # of what is private, down
COLUMNS = (62, 180, 318, 468)  # middles of records, shards, teachers and votes


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
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="Helvetica, Arial, DejaVu Sans, sans-serif">'
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
            _box(8, 8, WIDTH - 16, BORDER - 12, "#fdf3f0", "#f0cfc6", 12),
            _box(8, BORDER + 4, WIDTH - 16, 226, "#eff5fa", "#c9dcea", 12),
            _box(8, 488, WIDTH - 16, 70, "#eff5fa", "#c9dcea", 12),
            _text(22, 32, "private: stays with the owner", 18, PRIVATE, "start", bold=True),
            _text(22, BORDER + 29, "may be published", 18, PUBLIC, "start", bold=True),
        ]
    )


def _records() -> str:
    """Labelled records as a block of squares, a colour for each class."""
    squares = [
        _box(28 + 14 * column, 68 + 14 * row, 11, 11, CLASSES[(3 * row + 2 * column + row * column) % 5])
        for row in range(7)
        for column in range(5)
    ]
    return "".join(squares) + _name(COLUMNS[0], 204, "records", "each labelled")


def _shards() -> str:
    """The same records in disjoint groups."""
    parts = []
    for shard, middle in enumerate(SHARDS):
        parts.append(_box(147, middle - 15, 66, 30, "#ffffff", LINE, 6))
        parts += [
            _box(
                152 + 15 * column, middle - 12 + 13 * row, 11, 11, CLASSES[(shard + 2 * row + 3 * column) % 5]
            )
            for row in range(2)
            for column in range(4)
        ]
    return "".join(parts) + _name(COLUMNS[1], 204, "shards", "each in one")


def _teachers() -> str:
    """One program around all nets."""
    parts = [_box(272, 44, 92, 146, "#ffffff", PRIVATE, 10, 'stroke-width="2"')]
    parts += [_net(288, middle, 60, 22, INK) for middle in SHARDS]
    return "".join(parts) + _name(COLUMNS[2], 206, "teachers", "one program")


def _votes() -> str:
    """How many teachers say each class, for one query."""
    heights, parts = (16, 96, 26, 8, 14), []
    for place, height in enumerate(heights):
        parts.append(_box(422 + 19 * place, 172 - height, 15, height, CLASSES[place]))
    parts.append(_rule(416, 172, 519, 172, LINE))
    return "".join(parts) + _name(COLUMNS[3], 194, "votes")


def _noise() -> str:
    """The bell of the noise, on the border."""
    at = [place / 12 for place in range(-30, 31)]
    across, foot = COLUMNS[3], BORDER + 4
    bell = " ".join(f"{across + 11.5 * x:.1f},{foot - 28 * math.exp(-x * x / 2):.1f}" for x in at)
    return "".join(
        [
            f'<circle cx="{across}" cy="{BORDER}" r="37" fill="#fff" stroke="{PRIVATE}" stroke-width="2"/>',
            f'<polyline points="{bell}" fill="none" stroke="{PRIVATE}" stroke-width="2.5"/>',
            _text(across, BORDER + 22, "+ noise", 16, INK, bold=True),
        ]
    )


def _answers() -> str:
    """The class with the most noisy votes, of each query."""
    parts = []
    for colour, middle in zip((1, 0, 4), PILLS, strict=True):
        parts.append(_box(COLUMNS[3] - 32, middle - 14, 64, 28, "#ffffff", LINE, 14))
        parts.append(_box(COLUMNS[3] - 23, middle - 5.5, 11, 11, "#c3cdd5"))
        parts.append(_text(COLUMNS[3], middle + 4.5, "→", 15, SOFT))
        parts.append(_box(COLUMNS[3] + 11, middle - 5.5, 11, 11, CLASSES[colour]))
    return "".join(parts) + _name(COLUMNS[3], 453, "answers", "largest count")


def _student() -> str:
    """A larger net than a teacher's."""
    return _net(222, LOWER, 76, 82, PUBLIC) + _name(260, 453, "student", "learns answers")


def _release() -> str:
    """A sheet with the figure, and the student in it."""
    return "".join(
        [
            f'<path d="M38 336 h48 l18 18 v80 h-66 z" fill="#ffffff" stroke="{PUBLIC}" stroke-width="2"/>',
            f'<path d="M86 336 v18 h18" fill="none" stroke="{PUBLIC}" stroke-width="2"/>',
            _net(52, 378, 38, 30, PUBLIC),
            _text(71, 424, "ε, δ", 18, PUBLIC, bold=True),
            _name(71, 453, "release", "with its figure"),
        ]
    )


def _accountant() -> str:
    """What counts the cost, from the noise and the number of queries alone."""
    return "".join(
        [
            _box(204, 264, 182, 48, "#ffffff", PUBLIC, 8, 'stroke-width="1.5"'),
            _text(295, 284, "accountant", 18, INK, bold=True),
            _text(295, 303, "same ε for any votes", 16, SOFT),
        ]
    )


def _public_inputs() -> str:
    """Unlabelled squares along the bottom."""
    squares = [
        _box(170 + 14 * column, 503 + 14 * row, 11, 11, "#c3cdd5") for row in range(3) for column in range(25)
    ]
    return "".join(squares) + "".join(
        [
            _text(22, 520, "public inputs", 18, INK, "start", bold=True),
            _text(22, 541, "no labels", 16, SOFT, "start"),
        ]
    )


def _arrows() -> str:
    """What goes where."""
    parts = [_arrow([(100, UPPER), (142, middle)]) for middle in SHARDS]
    parts += [_arrow([(215, middle), (282, middle)]) for middle in SHARDS]
    parts += [
        _arrow([(368, UPPER), (412, UPPER)]),
        _arrow([(COLUMNS[3], 199), (COLUMNS[3], 210)]),
        _arrow([(COLUMNS[3], BORDER + 39), (COLUMNS[3], PILLS[0] - 18)]),
        _arrow([(432, LOWER), (308, LOWER)]),
        _arrow([(214, LOWER), (110, LOWER)]),
        _arrow([(COLUMNS[3] - 30, BORDER + 24), (430, 288), (392, 288)]),
        _arrow([(202, 296), (71, 296), (71, 330)]),
        _arrow([(400, 500), (400, 168), (370, 168)]),
        _arrow([(338, 500), (338, 414), (308, 414)]),
    ]
    return "".join(parts)


def _name(across: float, down: float, name: str, below: str = "") -> str:
    """The name of a stage, and a few words about it."""
    said = _text(across, down + 19, below, 16, SOFT) if below else ""
    return _text(across, down, name, 18, INK, bold=True) + said


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
