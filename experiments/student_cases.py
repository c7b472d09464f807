"""The cases of `experiments.students`: what is asked, with which noise, and how the student learns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pate_jax.mechanisms import GNMax, Mechanism
from pate_jax.student import FixMatch, StudentConfig, Supervised, Tandem, named
from pate_jax.student.selection import Selection


@dataclass(frozen=True)
class Case:
    """One row of a results table. The noise is continuous: what is measured here is no release."""

    name: str
    dataset: str
    queries: int
    mechanism: Mechanism
    student: StudentConfig
    selection: Selection = "learned"
    net: str | None = None
    """Of teachers that are trained for this case; unset: saved votes, or the data set's usual net."""


_MNIST = FixMatch(
    steps=9600, batch_size=16, unlabelled=4, learning_rate=5e-3, alignment=1.0, devices=1,
    settled=0.0,
)  # fmt: skip
_CLOTHES = Tandem(flip=True, alignment=1.0, devices=1)
_ADULT = Supervised(steps=300, learning_rate=2e-3, weight_decay=0.3)
CASES = {
    case.name: case
    for case in (
        Case("mnist_publishable", "mnist", 80, GNMax(47.4), _MNIST),
        Case("mnist_exact", "mnist", 120, GNMax(30.0), _MNIST),
        # Half the work of mnist_publishable with the same answers, to be compared with it.
        Case("mnist_shorter", "mnist", 80, GNMax(47.4), replace(_MNIST, steps=6000)),
        # The same until the labels of public inputs have settled.
        Case("mnist_settled", "mnist", 80, GNMax(47.4), replace(_MNIST, settled=None)),
        Case("mnist_small_batch", "mnist", 80, GNMax(47.4), replace(_MNIST, batch_size=8)),
        Case("adult", "adult", 700, GNMax(60.0), _ADULT, "random"),
        Case("fashion_mnist", "fashion_mnist", 1000, GNMax(42.0), _CLOTHES, "random", net="patches"),
    )
}
_OF_TABLE: dict[str, dict[str, Any]] = {"ridge": {}, "fixmatch": {"devices": 1, "settled": 0.0}}
TABLE = [
    Case(f"table_{method}_{queries}", "mnist", queries, GNMax(40.0), recipe, "kmeans")
    for method in ("supervised", "fixmatch", "vat", "gan", "ridge", "tandem")
    for recipe in [named(method, **_OF_TABLE.get(method, {"devices": 1}))]
    for queries in (50, 100, 250, 500, 1000)
]
