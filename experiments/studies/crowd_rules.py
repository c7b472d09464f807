"""The constants of `crowd.plan`, judged on made-up data alone: `python -m experiments.studies.crowd_rules`.

Each constant takes a few values around the present one while all others stay. A case is a family
(`crowd_families`), a number of private records and an epsilon. The regret of a value is how far
its accuracy lies below that of the best value of the same constant in that case. One line of JSON for each
value has its mean over all cases, and how it compares with the present value: the mean difference, and its
standard error over families.

The score of sums is the accuracy of their classifier on test inputs. That of neighbours is the mean of two:
test inputs take the label of the nearest query, or what kernel ridge regression learns from all queries.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from pate_jax.system import devices

devices.prepare()

import numpy as np  # noqa: E402

from experiments.studies.crowd_families import Family, families, kept  # noqa: E402
from pate_jax import crowd  # noqa: E402
from pate_jax.accounting.exact import counts as cost  # noqa: E402
from pate_jax.crowd import classifier, evidence, neighbours, shares  # noqa: E402

# The package has functions of the same names.
plan, vectors = (import_module(f"pate_jax.crowd.{name}") for name in ("plan", "vectors"))

DELTA = 1e-5
CASES = {2_000: [0.3, 1.0], 20_000: [0.1, 0.3, 1.0, 3.0]}  # private records, and epsilons


class Rule(NamedTuple):
    """A constant, by where it stands, and values for it."""

    voter: crowd.Kind
    name: str
    modules: tuple[Any, ...]
    constant: str
    values: list[Any]

    @property
    def present(self) -> Any:
        """Its present value."""
        return getattr(self.modules[0], self.constant)


RULES = [
    Rule("sums", "power of whitening", (plan,), "_POWER", [0.0, 0.25, 0.5, 0.75, 1.0]),
    Rule("sums", "share of the pool with full length", (plan,), "_FULL", [0.5, 0.75, 0.95, 1.0]),
    Rule("sums", "slope of the prior", (evidence,), "SLOPE", [0.5, 0.75, 1.0, 1.25]),
    Rule("sums", "part of the label that is linear", (evidence,), "LINEAR", [0.25, 0.5, 0.75, 0.9]),
    Rule("sums", "share of the constant", (evidence, plan), "CONSTANT", [0.1, 0.15, 0.2, 0.3, 0.5]),
    Rule(
        "sums",
        "powers of the classifier's prior",
        (classifier,),
        "_FALLS",
        [(0.0,), (1.0,), classifier._FALLS],
    ),
    Rule("sums", "length for each mu", (plan,), "_LENGTH", [1000, 4000, 16000]),
    Rule("neighbours", "power of whitening", (plan,), "_LIKENED", [0.0, 0.125, 0.25, 0.5]),
    Rule("neighbours", "directions compared", (plan,), "_COMPARED", [8, 15, 30, 60, 200]),
    Rule("neighbours", "most of the pool that is asked", (plan,), "_ASKED", [0.1, 0.2, 0.4]),
    Rule("neighbours", "noises of a query", (plan,), "_NOISES", [2, 4, 8, 16, 32]),
    Rule("neighbours", "likeness of the last query", (plan,), "_ALIKE", [0.5, 0.65, 0.75, 0.85, 0.95]),
    Rule("neighbours", "most votes", (plan,), "_VOTES", [1, 2, 4, 8, 16]),
]


def accuracy(here: Family, voter: crowd.Kind, epsilon: float, draws: int) -> float:
    """Of what the voters of a family have taught at this epsilon, in percent."""
    number = len(here.labels)
    made = crowd.plan(
        voter,
        here.space,
        here.pool,
        voters=number,
        classes=here.classes,
        mu=cost.mu_for(epsilon, DELTA),
    )
    table = sums_of(made, here) if voter == "sums" else counts_of(made, here)
    right = []
    for draw in range(draws):
        noise = np.random.default_rng(draw).normal(size=table.shape) * made.release.sigma
        noisy = np.rint(table + noise).astype(np.int64)
        scores = (
            shares.of_sums(noisy, made, here.pool, number, here.test).probabilities
            if voter == "sums"
            else taught(made, noisy, here)
        )
        right.append(float((scores.argmax(1) == here.truth).mean()))
        if voter == "neighbours":
            right.append(float((spread(made, noisy, here) == here.truth).mean()))
    return 100 * float(np.mean(right))


def sums_of(made: crowd.Plan, here: Family) -> np.ndarray:
    """The table of `crowd.sums`, from coordinates that are known already."""
    seen = vectors.vectors(made.scaling, here.private[:, : len(made.space.variances)])
    table = np.eye(here.classes)[here.labels].T @ seen
    return table[1:] - table[:1] if here.classes == 2 else table


def counts_of(made: crowd.Plan, here: Family) -> np.ndarray:
    """The table of `crowd.counts`, from coordinates that are known already."""
    asked = made.queries
    seen = vectors.vectors(made.scaling, here.private[:, : len(made.space.variances)])
    gaps = asked.offsets - 2 * seen.astype(np.float32) @ asked.vectors
    last = made.release.votes
    nearest = np.argpartition(gaps, min(last, gaps.shape[1]) - 1, axis=1)[:, :last]
    cells = nearest * here.classes + here.labels[:, None]
    return np.bincount(cells.ravel(), minlength=np.prod(made.release.shape)).reshape(made.release.shape)


def taught(made: crowd.Plan, noisy: np.ndarray, here: Family) -> np.ndarray:
    """Scores of test inputs by kernel ridge regression on the queries' shares."""
    width = len(made.space.variances)
    asked, test = made.queries.vectors.T, vectors.vectors(made.scaling, here.test[:, :width])
    near, far = (_gaps(each, asked) for each in (asked, test))
    width = np.median(far)
    known, others = np.exp(-near / width), np.exp(-far / width)
    answers = shares.of_counts(noisy, made.release).probabilities.astype(np.float64)
    middle = answers.mean(0)
    values, axes = np.linalg.eigh(known)
    along = axes.T @ (answers - middle)
    best, found = np.inf, along
    for penalty in np.geomspace(1e-3, 1e3, 13):
        each = 1 / (np.maximum(values, 0) + penalty)
        weights = axes @ (each[:, None] * along)
        left_out = weights / ((axes**2) @ each)[:, None]  # what each query's own answer is missed by
        missed = float((left_out**2).mean())
        if missed < best:
            best, found = missed, weights
    return middle + others @ found


def spread(made: crowd.Plan, noisy: np.ndarray, here: Family) -> np.ndarray:
    """Labels of test inputs: that of the nearest query."""
    asked, width = made.queries, len(made.space.variances)
    test = vectors.vectors(made.scaling, here.test[:, :width]).astype(np.float32)
    nearest = (asked.offsets - 2 * test @ asked.vectors).argmin(1)
    return shares.of_counts(noisy, made.release).probabilities.argmax(1)[nearest]


def _gaps(ones: np.ndarray, others: np.ndarray) -> np.ndarray:
    ones, others = ones.astype(np.float64), others.astype(np.float64)
    return (ones**2).sum(1)[:, None] + (others**2).sum(1) - 2 * ones @ others.T


def quick() -> ExitStack:
    """The same work with NumPy in place of compiled programs, and without doing anything twice."""
    stack, found = ExitStack(), {}

    def remembered(function: Any) -> Any:
        def work(points: np.ndarray, *more: Any) -> Any:
            digest = hashlib.blake2b(np.ascontiguousarray(points).tobytes(), digest_size=16).digest()
            key = (function.__name__, digest, *(each for each in more if isinstance(each, int)))
            if key not in found:
                found[key] = function(points, *more)
            return found[key]

        return work

    for module in (plan, classifier):
        stack.enter_context(patch.object(module, "held_out", remembered(evidence.held_out)))
    stack.enter_context(patch.object(neighbours, "cover", remembered(neighbours.cover)))
    stack.enter_context(patch.object(vectors, "bounded", _bounded))
    return stack


def _bounded(coordinates: np.ndarray, weights: np.ndarray, length: int, constant: int) -> np.ndarray:
    """`vectors.bounded` without compiling."""
    rest = np.floor(np.sqrt(length**2 - constant**2))
    found = np.rint(coordinates * weights.astype(np.float32))
    sizes = np.linalg.norm(found, axis=1, keepdims=True)
    found = np.trunc(found * np.minimum(1, rest / np.maximum(sizes, 1)))
    return np.pad(found, ((0, 0), (0, 1)), constant_values=constant) if constant else found


_PRESENT: dict[tuple, float] = {}  # accuracies under the present rules, which all constants share


def cases(here: Family) -> Iterator[tuple[Family, float]]:
    """The numbers of records and the epsilons at which a family is judged."""
    for records, epsilons in CASES.items():
        if records <= len(here.labels) or records == min(CASES):
            for epsilon in epsilons:
                yield here.shortened(records), epsilon


def measured(rule: Rule, here: Family, draws: int) -> list[list[float]]:
    """Accuracies [case][value] of a family."""
    found = []
    for part, epsilon in cases(here):
        case = (rule.voter, here.name, len(part.labels), epsilon)
        if case not in _PRESENT:
            _PRESENT[case] = accuracy(part, rule.voter, epsilon, draws)
        row = []
        for value in rule.values:
            if value == rule.present:
                row.append(_PRESENT[case])
                continue
            with ExitStack() as stack:
                for module in rule.modules:
                    stack.enter_context(patch.object(module, rule.constant, value))
                row.append(accuracy(part, rule.voter, epsilon, draws))
        found.append(row)
    return found


def lines(rule: Rule, found: dict[str, list[list[float]]]) -> Iterator[dict[str, Any]]:
    """One for each value: its mean regret, and how it compares with the present value."""
    rows = {name: np.array(row) for name, row in found.items()}
    present = rule.values.index(rule.present)
    for place, value in enumerate(rule.values):
        regret = [float((row.max(1) - row[:, place]).mean()) for row in rows.values()]
        gain = [float((row[:, place] - row[:, present]).mean()) for row in rows.values()]
        yield {
            "voter": rule.voter,
            "rule": rule.name,
            "value": shown(value),
            "present": place == present,
            "regret": round(float(np.mean(regret)), 2),
            "gain": round(float(np.mean(gain)), 2),
            "error": round(float(np.std(gain, ddof=1) / len(gain) ** 0.5), 2),
            "families": len(rows),
        }


def shown(value: Any) -> Any:
    """A value as JSON has it."""
    return getattr(value, "__name__", value)


def main() -> None:
    """Judge the chosen rules on all families."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--voter", choices=["sums", "neighbours"])
    parser.add_argument("--rules", nargs="+", help="the constants, by name; all if none is named")
    parser.add_argument("--families", nargs="+", help="by name; all if none is named")
    parser.add_argument("--folder", type=Path, default=Path("build/crowd_families"), help="of made families")
    parser.add_argument("--seed", type=int, default=0, help="another one draws other tables and vectors")
    parser.add_argument("--draws", type=int, default=2, help="of the noise")
    parser.add_argument("--raw", type=Path, help="append the accuracies of each case to this file")
    chosen = parser.parse_args()
    rules = [
        rule
        for rule in RULES
        if chosen.voter in (None, rule.voter) and (not chosen.rules or rule.constant in chosen.rules)
    ]
    found: dict[int, dict[str, list[list[float]]]] = {number: {} for number in range(len(rules))}
    for name in chosen.families or families():
        here = kept(name, chosen.folder, chosen.seed)
        with quick():
            for number, rule in enumerate(rules):
                found[number][name] = measured(rule, here, chosen.draws)
                if chosen.raw:
                    with chosen.raw.open("a") as file:
                        said = {"family": name, "voter": rule.voter, "constant": rule.constant}
                        file.write(
                            json.dumps(
                                {
                                    **said,
                                    "values": list(map(shown, rule.values)),
                                    "right": found[number][name],
                                }
                            )
                            + "\n"
                        )
    for number, rule in enumerate(rules):
        for line in lines(rule, found[number]):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
