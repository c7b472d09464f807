"""Mistakes in what single persons are said to risk: each is caught."""

import functools
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import honest_runs
import jax
import numpy as np
import pytest
import test_pair
from catalogue import FAILURES, case, fails, is_caught, replaced, source
from test_attacks import ANSWERING, audited, test_a_plurality_withstands_so_many_bad_teachers_and_no_more
from test_risk import contents, recounted, votes_without

from pate_jax import aggregate
from pate_jax.accounting.exact import pair
from pate_jax.audit.attacks import poisoning, removals, risk
from pate_jax.audit.attacks.removals import Removals
from pate_jax.crowd import tables
from pate_jax.runs import directory, inputs
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.directory import RunDirectory


def copied(folder):
    return RunDirectory(shutil.copytree(honest_runs.whole(7).root, folder / "run"))


@functools.cache
def truth(name):
    """What is voted without a person, which no mistake changes: it is computed before there is one."""
    return votes_without(inputs.open(honest_runs.whole(7)), name)


@functools.cache
def truths(voters):
    return list(recounted(seen_by(voters)))


def seen_by(voters):
    return honest_runs.in_steps("user") if voters == "sums" else honest_runs.crowd(voters, "user")


def of_teachers(patch, folder: Path) -> list[str]:
    """The moved votes of five people, beside a data set that never had them."""
    made = Removals(inputs.open(copied(folder)), folder / "risk")
    names = sorted(made.rows)[:5]
    try:
        moved = made.moves(names)
    except FAILURES as error:
        return [f"refused: {error}"]
    found = []
    for name, one in zip(names, moved, strict=True):
        expected = made.labels.copy()
        expected[made.teacher_of[made.rows[name][0]], one.queries] = one.after
        if (truth(name) != expected).any():
            found.append(f"without {name} other votes are cast")
    return found


def of_files(patch, folder: Path) -> list[str]:
    """What the release holds before and after."""
    run = copied(folder)
    before = contents(run.root / "release")
    risk.keep(risk.assess(run, "2"))
    return ["release/ is another"] if contents(run.root / "release") != before else []


def of_crowd(voters, patch, folder: Path) -> list[str]:
    """The shifts of a few voters, beside tables that are counted without them."""
    run = seen_by(voters)
    found = removals.shifts_of(crowd_inputs.opened(run))
    said = dict(zip(found.names.tolist(), found.removed.tolist(), strict=True))
    return [f"{name} moves more" for name, exact in truths(voters) if abs(said[name] / exact - 1) > 1e-9]


def of_noise(patch, folder: Path) -> list[str]:
    """The attack on a small mechanism."""
    found = audited(ANSWERING[0])
    return [] if found.holds else [found.sentence()]


def a_tenth(real):
    return lambda asked, *given, **more: real(replace(asked, sigma=asked.sigma / 10), *given, **more)


def other_key(real):
    return lambda *given, **more: real(*given, **{**more, "key": jax.random.key(5)})


def one_record_only(real):
    """Of a user with several records only the first one is taken out."""
    return property(lambda self: {name: rows[:1] for name, rows in real.__get__(self, Removals).items()})


SUMS, NEIGHBOURS = partial(of_crowd, "sums"), partial(of_crowd, "neighbours")
DIRECTIONS = fails(test_pair.test_the_two_directions_differ_and_the_larger_one_counts)
MISTAKES = [
    case(
        "a person's votes are not taken out",
        source(Removals, "_moved", "np.flatnonzero(again != self.labels[teacher])", "np.zeros(0, np.int64)"),
        of_teachers,
        "other votes are cast",
    ),
    case(
        "teachers are trained again with another key",
        replaced(removals.ensemble, "fit", other_key),
        of_teachers,
        "refused: .*otherwise than in the run",
    ),
    case(
        "one of a user's records is taken out",
        replaced(Removals, "rows", one_record_only),
        of_teachers,
        "other votes are cast",
    ),
    case(
        "one direction of the divergence alone",
        source(
            pair, "_figures", "for stick in (forward, backward)), None", "for stick in (backward,)), None"
        ),
        DIRECTIONS,
        "two_directions",
    ),
    case(
        "the figures are written into release/",
        lambda patch: patch.setattr(RunDirectory, "risk", directory._Place("release", "risk"), raising=False),
        of_files,
        "release/ is another",
    ),
    case(
        "the released number of voters is forgotten",
        source(removals, "shifts_of", "for line in shown.numbers", "for line in shown.numbers[1:]"),
        SUMS,
        "moves more",
    ),
    case(
        "all steps but the first are forgotten",
        source(removals, "shifts_of", "for line in shown.tables", "for line in shown.tables[:1]"),
        SUMS,
        "moves more",
    ),
    case(
        "lengths in place of their squares",
        replaced(tables, "own_squares", lambda real: lambda *given: np.sqrt(real(*given)).astype(int)),
        SUMS,
        "moves more",
    ),
]


MISTAKES += [
    case("a tenth of the noise", replaced(aggregate, "answer", a_tenth), of_noise, "HIDES LESS THAN IS SAID"),
    case(
        "a lead of 2k is taken for enough",
        source(poisoning, "withstood", "+ 1) // 2 - 1", ") // 2"),
        fails(test_a_plurality_withstands_so_many_bad_teachers_and_no_more),
        "a_plurality_withstands",
    ),
]


@pytest.mark.parametrize("mutation", MISTAKES)
def test_a_mistake_of_risk_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)
