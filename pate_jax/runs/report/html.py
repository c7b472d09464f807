"""The parts of an HTML page that needs no network: pictures, folded tables and the page around them."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from pate_jax import __version__

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2330;--paper:#fff;--faint:#4b5565;--line:#d8dde6;--bar:#2b6cb0;
--bad:#b3261e;--warn:#fdecea;--note:#eef4fb;--track:#e4e8ee;--withheld:#b00020;--released:#006b3c}
@media (prefers-color-scheme:dark){:root{--ink:#e4e8ee;--paper:#14181f;--faint:#a9b3c2;--line:#39424f;
--bar:#63a4e8;--bad:#ff8a80;--warn:#3b1f1d;--note:#1b2a3a;--track:#2a323d;--withheld:#ff8a80;--released:#6fd3a0}}
body{font:16px/1.5 system-ui,sans-serif;max-width:54rem;margin:2rem auto;padding:0 1rem;color:var(--ink);
background:var(--paper)}
h1{font-size:1.6rem;margin-bottom:.2rem} h2{font-size:1.2rem;margin-top:2rem} h1,h2{overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%;margin:.5rem 0;font-size:.95rem}
th[scope=row]{font-weight:400}
td,th{padding:.35rem .6rem .35rem 0;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
.scroll{overflow-x:auto} .scroll td:last-child{min-width:13rem} .rows td:last-child{min-width:0}
.rows td:first-child,.wide td{overflow-wrap:anywhere}
.rows td:last-child{overflow-wrap:normal} .wide td:last-child{width:75%}
.wide span{display:inline-block;margin-right:.7rem}
img{width:100%;min-width:27rem;height:auto} img.compact{min-width:0;max-width:36rem}
pre{white-space:pre-wrap} td:last-child,p,li{overflow-wrap:anywhere}
figure{margin:1.2rem 0} figcaption{color:var(--faint);font-size:.92rem}
.big{font-size:1.1rem} .warn{background:var(--warn);border-left:4px solid var(--bad);padding:.6rem 1rem}
.note{background:var(--note);border-left:4px solid var(--bar);padding:.6rem 1rem}
.facts{display:flex;flex-wrap:wrap;gap:.8rem;margin:1rem 0;padding:0}
.facts>div{flex:1 1 15rem;border:1px solid var(--line);border-radius:.4rem;padding:.6rem 1rem}
.facts dt{color:var(--faint);font-size:.92rem} .facts dd{margin:0;font-size:1.25rem;font-weight:600}
.facts dd+dd{font-size:.92rem;font-weight:400}
.meter{display:inline-block;width:4.5rem;height:.7rem;background:var(--track);margin-right:.5rem}
.meter i{display:block;height:100%;background:var(--bar)} .wrong{color:var(--bad);font-weight:600}
.sheet{display:grid;grid-template-columns:repeat(auto-fill,minmax(5.6rem,1fr))}
.sheet{gap:.7rem;padding:0;list-style:none}
.sheet li{text-align:center;font-size:.85rem;line-height:1.25;padding:.4rem .2rem}
.sheet li{border:1px solid var(--line)}
.sheet li.off{border:2px solid var(--bad)}
.sheet img{display:block;width:4rem;min-width:0;margin:0 auto .3rem;image-rendering:pixelated}
details{margin:1rem 0} summary{cursor:pointer;font-weight:600}
:focus-visible{outline:3px solid var(--bar);outline-offset:2px}
@media (max-width:30rem){.meter{display:block;width:3rem} .rows{font-size:.87rem}
.rows td,.rows th{padding-right:.35rem}}
"""


def scrolling(fragment: str, name: str) -> str:
    """A part that scrolls by itself where it is too wide, also with the keys of a keyboard."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(name)}">{fragment}</div>'


def heading(title: str) -> str:
    """The title of a section."""
    return f"<h2>{escape(title)}</h2>"


def rows(heads: Sequence[str], body: Sequence[Sequence[str]], *, wide: bool = False) -> str:
    """A table whose cells are fragments and fit any screen; the last column may be `wide`.

    >>> rows(("Class",), [["cat"]])
    '<table class="rows"><tr><th scope="col">Class</th></tr><tr><td>cat</td></tr></table>'
    """
    top = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in body)
    return f'<table class="rows{" wide" * wide}"><tr>{top}</tr>{lines}</table>'


def bar(share: float, text: str) -> str:
    """A share as a bar, with the words that say it.

    >>> bar(0.25, "25%")
    '<span class="meter" aria-hidden="true"><i style="width:25%"></i></span>25%'
    """
    filled = f'<i style="width:{100 * share:.3g}%"></i>'
    return f'<span class="meter" aria-hidden="true">{filled}</span>{escape(text)}'


def wrong(text: str) -> str:
    """A text that is marked as wrong, by colour and in words.

    >>> wrong("cat")
    '<span class="wrong">✗ cat</span>'
    """
    return f'<span class="wrong">✗ {escape(text)}</span>'


def tiles(facts: Sequence[tuple[str, str, str]]) -> str:
    """The figures that matter most: a name, a value, and what it means."""
    each = (
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><dd>{escape(more)}</dd></div>"
        for name, value, more in facts
    )
    return f'<dl class="facts">{"".join(each)}</dl>'


def picture(caption: str, svg: bytes, *, compact: bool = False) -> str:
    """A figure with its caption. On a narrow screen it scrolls by itself, unless it is `compact`."""
    encoded = base64.b64encode(svg).decode()
    text, kind = escape(caption), ' class="compact"' if compact else ""
    shown = f'<img{kind} alt="{text}" src="data:image/svg+xml;base64,{encoded}">'
    image = f'<div class="scroll">{shown}</div>' if compact else scrolling(shown, caption)
    return f"<figure>{image}<figcaption>{text}</figcaption></figure>"


def folded(title: str, fragment: str) -> str:
    """A fragment that stays folded under its title until somebody opens it."""
    return f"<details><summary>{escape(title)}</summary>{scrolling(fragment, title)}</details>"


def table(content: Mapping[str, Any]) -> str:
    """Names and their values; a mapping inside becomes rows of its own.

    >>> table({"data": {"batch_size": 3}})
    '<table><tr><th scope="row">data · batch size</th><td>3</td></tr></table>'
    """
    cells = (
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
        for name, value in _rows(content)
    )
    return f"<table>{''.join(cells)}</table>"


def _rows(content: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in content.items():
        if isinstance(value, Mapping):
            rows += _rows(value, f"{prefix}{name} · ")
        else:
            rows.append((f"{prefix}{name}".replace("_", " "), _text(value)))
    return rows


def _text(value: Any) -> str:
    if value is None:
        return "not set"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def page(title: str, body: Sequence[str], style: str = "") -> str:
    """A whole page from fragments, without scripts and links to elsewhere; `style` adds to the common one."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f'<link rel="icon" href="data:,"><style>{_STYLE}{style}</style></head>'
        f"<body><main><h1>{escape(title)}</h1>"
        f"{''.join(body)}<p><small>pate_jax {__version__}</small></p></main></body></html>\n"
    )


def share(right: int, inputs: int) -> str:
    """A share in per cent.

    >>> share(197, 200)
    '98.5%'
    """
    return f"{right / inputs:.1%}"


def interval(low: float, high: float) -> str:
    """Limits in per cent, each rounded away from the middle.

    >>> interval(0.97651, 0.98149)
    '97.6% to 98.2%'
    """
    least, most = math.floor(round(low * 1000, 6)) / 10, math.ceil(round(high * 1000, 6)) / 10
    return f"{least:.1f}% to {most:.1f}%"
