"""How students learn, one file for each method, all behind one interface.

A new method is a file here, its settings in `pate_jax.student.settings`, and its line in `NETS` or `METHODS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import jax

from pate_jax.student.lesson import Learned, Lesson
from pate_jax.student.methods import fixmatch, gan, nets, ridge, supervised, tandem, vat


class Method(Protocol):
    """One way to learn: its settings, with nothing unset, one key a student, and a lesson to learned nets."""

    def __call__(self, config: Any, keys: jax.Array, lesson: Lesson, /) -> list[Learned]:
        """Learn, once for each key."""


NETS: Mapping[str, nets.Trainer] = {
    "supervised": nets.trainer(supervised.objective),
    "vat": nets.trainer(vat.objective),
    "gan": nets.trainer(gan.objective),
    "fixmatch": nets.trainer(fixmatch.objective),
}
METHODS: Mapping[str, Method] = {**NETS, "ridge": ridge.learn, "tandem": tandem.learn}
