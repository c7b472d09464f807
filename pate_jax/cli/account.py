"""`pate account`: what answers cost, or have cost."""

from __future__ import annotations

import json as json_format
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tyro.conf import Positional

from pate_jax import accounting
from pate_jax.accounting import planning, stable_statement
from pate_jax.accounting.crowd_statement import CrowdStatement
from pate_jax.accounting.figures import rounded_up
from pate_jax.accounting.inputs import CUSTOMARY_DELTA, check_delta
from pate_jax.accounting.smooth import check_confidence
from pate_jax.data.trial_mark import SENTENCE
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax, Mechanism
from pate_jax.mechanisms.stable import AnyMechanism, StableAnswers
from pate_jax.runs import budget
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import check_queries
from pate_jax.runs.thresholds import MechanismOrRun, StableChoice, check_threshold, threshold_warning
from pate_jax.system import progress, storage
from pate_jax.voting.votes import votes_of

_LOUDEST = 1 / 6  # of the number of teachers: noise of a larger scale leaves few answers right
_FEW = 20  # answers, from which a student learns little


class Affordable(NamedTuple):
    """Noisy answers of a votes file within an epsilon: nothing of it depends on how the teachers voted."""

    epsilon: float  # what was wished
    delta: float
    mechanism: str
    sigma: float
    answers: int  # of the first so many queries
    queries: int  # of the file
    teachers: int
    spent: float  # to be published

    def text(self, votes: Path, teacher_labels: bool = False) -> str:
        """What it buys, and the command that draws the answers."""
        few = "all" if self.answers == self.queries else f"the first {self.answers:,} of"
        command = (
            f"pate aggregate {shlex.quote(str(votes))} {self.mechanism} --sigma {self.sigma:.12g} "
            f"--budget-epsilon {self.epsilon:g} --delta {self.delta:g} --relation record "
            f"--out {shlex.quote(f'runs/{votes.stem}')}"
            f"{' --labels-are-teacher-labels' if teacher_labels else ''}"
        )
        little = "So few answers teach a student little: raise --epsilon, or train more teachers.\n"
        return (
            f"Within epsilon {self.epsilon:g} at delta = {self.delta:g}: answers to {few} {self.queries:,} "
            f"queries of {self.teachers:,} teachers, each the\nclass of the largest count after discrete "
            f"Gaussian noise of scale {self.sigma:.12g}.\n"
            f"They cost {rounded_up(self.spent)}, whatever the votes are: this is the figure to publish.\n"
            f"{little if self.answers < _FEW else ''}\n"
            f"next: {command}\n"
            "(--relation says what moves one vote at most: record, user, contents or party)"
        )


def affordable(shape: tuple[int, ...], teachers: int, epsilon: float, delta: float) -> Affordable:
    """As many answers as noise allows that is not too loud for so many teachers, at most those of the file.

    >>> found = affordable((9000, 10), 250, 1.0, 1e-5)
    >>> found.mechanism, found.sigma, found.answers, found.spent <= 1
    ('discrete-gaussian', 44.81, 95, True)
    """
    queries, classes = shape
    planning.check(teachers, classes, epsilon, delta)
    room = _LOUDEST * teachers * planning.mu(epsilon, delta)
    answers = min(queries, max(1, int(room**2 / planning.INDEX)))
    size = teachers, classes, epsilon, delta
    mechanism, spent = planning.calibrated(DiscreteGaussianMax(1.0), answers, *size)
    while answers < queries:  # what rounding the noise up has left
        more = planning.spends(mechanism, answers + 1, teachers, classes, delta)
        if more > epsilon:
            break
        answers, spent = answers + 1, more
    return Affordable(
        epsilon, delta, mechanism.name, mechanism.noise.scale, answers, queries, teachers, spent
    )


class Spent(NamedTuple):
    """Votes, what answers them, and what that costs."""

    mechanism: AnyMechanism
    votes: np.ndarray
    delta: float
    statement: accounting.AnswersStatement


def account(
    votes: Positional[Path],
    mechanism: MechanismOrRun = None,
    epsilon: float | None = None,
    delta: float | None = None,
    queries: int | None = None,
    answered: Path | None = None,
    labels_are_teacher_labels: bool = False,
    published: bool = False,
    sanitise: bool = False,
    confidence: float = 0.99,
    no_pld: bool = False,
    plots: Path | None = None,
    json: bool = False,
) -> None:
    """Say what answering the queries of a votes file costs, or what a run has spent.

    With --epsilon in place of a mechanism: how many answers it buys, with which noise, by which command.

    Args:
        votes: a votes file (.npz or .npy), or a run directory (which knows its own mechanism).
        mechanism: the mechanism that answers.
        epsilon: for a votes file: what its answers may cost, in place of a mechanism.
        delta: the delta of the statement; unset: that of the run, else 1e-5.
        queries: charge this many queries only, from the first on.
        answered: .npy mask of the queries that were answered; unset: none yet, so no realised sum is shown.
        labels_are_teacher_labels: the file holds labels[teacher, query] and not histograms.
        published: print the papers' own figures as well.
        sanitise: release the exact cost too, as an upper limit that may be published (Gaussian mechanisms);
            each call draws and costs anew, and is recorded (for a votes file, beside it).
        confidence: how sure the upper limit of --sanitise is, however often it is drawn.
        no_pld: leave out the figure by privacy-loss distributions, also where it may be the smaller one.
        plots: folder to write the plots into, as SVG.
        json: print one JSON object.
    """
    if delta is not None:
        check_delta(delta)
    check_confidence(confidence)
    if not votes.exists():
        raise PateError(f"{votes} does not exist: name a votes file or a run directory")
    pld, sure, at = not no_pld, confidence if sanitise else None, delta or CUSTOMARY_DELTA
    if votes.is_dir():
        _check_of_run(votes, queries, answered, mechanism, epsilon)
        found = _of_directory(votes, delta, pld, sure, published or sanitise or plots is not None, json)
        if found is None:
            return
        trial, spent = found
    else:
        given = votes_of(votes, labels_are_teacher_labels)
        trial, histograms = {"trial": SENTENCE} if given.trial else {}, _first(given.votes, queries)
        if epsilon is not None and mechanism is None:
            _show_affordable(votes, histograms, (epsilon, at), labels_are_teacher_labels, json)
            return
        chosen = _settled(mechanism, epsilon, votes, delta)
        mask = None if answered is None else _mask(answered, len(histograms))
        spent = _of_votes(chosen, histograms, mask, at, pld=pld, confidence=sure, path=votes)
    if plots is not None:
        _draw(plots, spent)
    _show(spent, trial, published, json)


def _show_affordable(
    votes: Path, histograms: np.ndarray, promise: tuple[float, float], teacher_labels: bool, json: bool
) -> None:
    """Print how many answers an epsilon, at a delta, buys."""
    bought = affordable(histograms.shape, int(histograms.sum(1).max()), *promise)
    print(json_format.dumps(bought._asdict()) if json else bought.text(votes, teacher_labels))


def _check_of_run(folder: Path, *given: object) -> None:
    """Refuse for a run what it has recorded."""
    if any(one is not None for one in given):
        raise PateError(
            f"{folder} is a run, whose mechanism, queries and answers are recorded: leave out the mechanism, "
            "--epsilon, --queries and --answered, or name a votes file"
        )


def _of_directory(
    folder: Path, delta: float | None, pld: bool, sure: float | None, more: bool, json: bool
) -> tuple[Mapping[str, str], Spent] | None:
    """What the answers of a run have cost; None of a crowd's run, whose statement is printed at once."""
    from pate_jax.runs import kinds, publication

    run = RunDirectory(folder)
    account = kinds.of(run).account
    if account is not None:
        _of_tables(run, account, delta, more, json)
        return None
    return publication.trial(run), _of_run(run, delta, pld=pld, confidence=sure)


def _settled(
    mechanism: MechanismOrRun, epsilon: float | None, votes: Path, delta: float | None
) -> AnyMechanism:
    """The mechanism that is named for a votes file."""
    if mechanism is None:
        raise PateError(
            f"{votes} is a votes file: say what its answers may cost, as in `pate account {votes} --epsilon "
            f"1`, or name a mechanism, as in `pate account {votes} discrete-gaussian --sigma 40`"
        )
    if epsilon is not None:
        raise PateError(
            f"--epsilon {epsilon:g} chooses the noise, and a mechanism has its own: leave one of them out"
        )
    if isinstance(mechanism, StableChoice):
        return mechanism.settled(None, delta or CUSTOMARY_DELTA)
    named: AnyMechanism = mechanism
    return named


def _show(spent: Spent, trial: Mapping[str, str], published: bool, json: bool) -> None:
    """Print what is spent, and the papers' own figures if they are wished."""
    if json:
        papers = {"papers": accounting.published(*_by_query(spent))._asdict()} if published else {}
        print(json_format.dumps({**trial, **spent.statement.to_dict(), **papers}))
    else:
        print(spent.statement.text())
        if published:
            print(spent.statement.papers_text())
            print(accounting.published_text(*_by_query(spent)), end="")
        print("".join(f"{line}\n" for line in trial.values()), end="")


def _of_run(run: RunDirectory, delta: float | None, *, pld: bool, confidence: float | None) -> Spent:
    """What the answers of a run of teachers have cost; the statement is written too."""
    from pate_jax.runs import stages
    from pate_jax.runs.answers import load_asked

    with run.writing():
        statement = stages.account(run, delta, None if pld else False, confidence)
    if run.teacher_report.exists():
        records = storage.read_json(run.teacher_report, "teacher-report")["records"]
        budget.warn_of_delta(statement.delta, records)
    return Spent(run.record.read().mechanism, load_asked(run).votes, statement.delta, statement)


def _of_votes(
    mechanism: AnyMechanism,
    votes: np.ndarray,
    answered: np.ndarray | None,
    delta: float,
    *,
    pld: bool,
    confidence: float | None,
    path: Path,
) -> Spent:
    """What answering these votes costs, with noise from entropy."""
    most = int(votes.sum(1).max())
    check_threshold(mechanism, most)
    progress.warn(threshold_warning(mechanism, most))
    if isinstance(mechanism, StableAnswers):
        given = len(votes) if answered is None else int(answered.sum())
        size = {"asked": len(votes), "answered": given, "teachers": most, "classes": votes.shape[1]}
        spent = Spent(mechanism, votes, delta, stable_statement(mechanism, delta, **size, private=True))
        if confidence is not None:
            _by_query(spent)  # refuses
        return spent
    figure = None
    if confidence is not None:
        from pate_jax.runs import limits  # here, since it loads JAX, which no other figure needs

        record = limits.beside(path)
        figure = limits.draw(record, mechanism, votes, delta, confidence)
        progress.say(f"the draw is recorded in {record}: keep it there, so that further draws are counted")
    statement = accounting.statement(
        mechanism,
        votes,
        answered,
        delta,
        declared=False,
        sanitised=figure,
        pld=None if pld else False,
        private=True,
    )
    return Spent(mechanism, votes, delta, statement)


def _of_tables(
    run: RunDirectory,
    account: Callable[[RunDirectory, float | None], CrowdStatement],
    delta: float | None,
    more: bool,
    json: bool,
) -> None:
    """The statement of a run of tables, which has one figure."""
    from pate_jax.runs import publication

    if more:
        raise PateError(
            f"{run.root} is the run of a crowd, whose one figure depends on no private record: leave out "
            "--sanitise, --published and --plots"
        )
    with run.writing():
        statement = account(run, delta)
    if json:
        print(json_format.dumps({**publication.trial(run), **statement.to_dict()}))
    else:
        print("\n".join([statement.text(), *publication.trial(run).values()]))


def _by_query(spent: Spent) -> tuple[Mechanism, np.ndarray, float]:
    """What figures and pictures of single queries are made from; stable answers have none."""
    mechanism, votes, delta, _ = spent
    if isinstance(mechanism, StableAnswers):
        raise PateError(
            "stable answers are charged as one list, and no query has a cost of its own: leave out "
            "--sanitise, --published and --plots"
        )
    return mechanism, votes, delta


def _first(votes: np.ndarray, queries: int | None) -> np.ndarray:
    if queries is None:
        return votes
    check_queries(queries)
    if queries > len(votes):
        raise PateError(f"queries={queries} is more than the {len(votes)} queries of the votes file")
    return votes[:queries]


def _draw(folder: Path, spent: Spent) -> None:
    from pate_jax.accounting import plots as draw

    for name, picture in zip(
        ("cumulative", "by_consensus", "split"), draw.every(*_by_query(spent)), strict=True
    ):
        storage.write_bytes(folder / f"{name}.svg", picture)


def _mask(path: Path, queries: int) -> np.ndarray:
    try:
        mask = storage.read_npy(storage.read_bytes(path))
    except storage.UNREADABLE as error:
        raise PateError(f"{path} is not a readable .npy array: {error or 'it is damaged'}") from error
    if mask.shape != (queries,) or mask.dtype != bool:
        raise PateError(
            f"{path} must hold {queries} booleans, one for each query; it holds {mask.shape} {mask.dtype}"
        )
    return mask
