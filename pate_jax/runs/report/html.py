"""The parts of an HTML page that needs no network: pictures, folded tables and the page around them."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from pate_jax import __version__

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:54rem;margin:2rem auto;padding:0 1rem;color:#1c2330}
h1{font-size:1.6rem;margin-bottom:.2rem} h2{font-size:1.2rem;margin-top:2rem}
table{border-collapse:collapse;width:100%;margin:.5rem 0;font-size:.95rem}
td,th{padding:.35rem .6rem;text-align:left;border-bottom:1px solid #d8dde6;vertical-align:top}
.scroll{overflow-x:auto} .scroll td:last-child{min-width:13rem}
img{width:100%;min-width:27rem;height:auto} img.compact{min-width:0;max-width:36rem}
pre{white-space:pre-wrap} td:last-child,p,li{overflow-wrap:anywhere}
figure{margin:1.2rem 0} figcaption{color:#4b5565;font-size:.92rem}
.big{font-size:1.1rem} .warn{background:#fdecea;border-left:4px solid #b3261e;padding:.6rem 1rem}
.note{background:#eef4fb;border-left:4px solid #2b6cb0;padding:.6rem 1rem}
details{margin:1rem 0} summary{cursor:pointer;font-weight:600}
"""


def _scrolling(fragment: str) -> str:
    return f'<div class="scroll">{fragment}</div>'


def picture(caption: str, svg: bytes, *, compact: bool = False) -> str:
    """A figure with its caption. On a narrow screen it scrolls by itself, unless it is `compact`."""
    encoded = base64.b64encode(svg).decode()
    text, kind = escape(caption), ' class="compact"' if compact else ""
    image = _scrolling(f'<img{kind} alt="{text}" src="data:image/svg+xml;base64,{encoded}">')
    return f"<figure>{image}<figcaption>{text}</figcaption></figure>"


def folded(title: str, fragment: str) -> str:
    """A fragment that stays folded under its title until somebody opens it."""
    return f"<details><summary>{escape(title)}</summary>{_scrolling(fragment)}</details>"


def table(content: Mapping[str, Any]) -> str:
    """Names and their values; a mapping inside becomes rows of its own.

    >>> table({"data": {"batch_size": 3}})
    '<table><tr><td>data · batch size</td><td>3</td></tr></table>'
    """
    cells = [f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in _rows(content)]
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
        f"<body><h1>{escape(title)}</h1>"
        f"{''.join(body)}<p><small>pate_jax {__version__}</small></p></body></html>\n"
    )
