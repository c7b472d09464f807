"""The pictures that a released page may hold: a few small ones of public inputs, and nothing but pixels."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator

import numpy as np

from pate_jax.data import duplicates
from pate_jax.runs.report import sheet

MOST = 60
_ADDRESS = re.compile(re.escape(sheet.PREFIX) + r"([A-Za-z0-9+/=]*)")


def parted(page: str) -> tuple[str, list[np.ndarray]]:
    """A page without its pictures, and their pixels; what is no such picture stays in the page.

    >>> address = sheet.address(np.array([[[7]]], np.uint8))
    >>> parted(f"<img src='{address}'>"), parted(address + "AAAA")[1]
    (("<img src=''>", [array([[[7]]], dtype=uint8)]), [])
    """
    found: list[np.ndarray] = []

    def taken(match: re.Match[str]) -> str:
        try:
            found.append(sheet.read_png(base64.b64decode(match[1], validate=True)))
        except (ValueError, binascii.Error):
            return match[0]
        return ""

    return _ADDRESS.sub(taken, page), found


def faults(name: str, pictures: list[np.ndarray]) -> Iterator[str]:
    """More pictures than a page may hold."""
    if len(pictures) > MOST:
        yield f"{name} holds {len(pictures)} pictures, and may hold {MOST}"


def private(
    pictures: list[np.ndarray], forms: Iterable[np.ndarray], whose: str = "private records"
) -> Iterator[str]:
    """Pictures of these inputs, in any form that these have; a picture of one colour reveals nothing."""
    shown = {duplicates.digests(picture[None])[0] for picture in pictures if np.ptp(picture)}
    for form in forms if shown else ():
        if form.ndim == 4:
            known = (duplicates.digests(sheet.thumbnail(image)[None])[0] for image in form)
            if held := sum(name in shown for name in known):
                yield f"report.html shows the inputs of {held} {whose}"
