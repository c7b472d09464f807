"""Who took part? Attacks on what a run publishes, calibrated with shadow runs of the whole pipeline.

Each shadow run has every record with an even chance. It is the target once, while all others show what the
pipeline says of a record that is a member and of one that is not:

- `loss`: the probability of the record's own label (Yeom et al. 2018, arXiv 1709.01604);
- `lira`: the likelihood ratio of its logit between two normal laws, fitted to shadows with and without the
  record (Carlini et al. 2022, arXiv 2112.03570, algorithm 1); `lira, offline` fits the latter only;
- `rmia`: how much the target raises the record's probability, compared with records that never are members
  (Zarifzadeh et al. 2024, arXiv 2312.03262, with gamma 1);
- `table`, of teachers `answers`: `lira` on how far what is released agrees with the record itself. All else
  follows from what is released;
- `table, others known`, or `answers, others known`: the exact likelihood ratio for whoever knows all other
  records and who of them took part. No attack does better. The curve of a table is known: it shows that the
  noise is right.

Variances are those of each record from 128 shadows on (64 with and 64 without it), and below that one for all
records, as in the paper.

Runs of crowds and of linear teachers can be attacked so: their public side, noise and private records are
read again. One person in ten never is a member: others are compared with these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import special

from pate_jax.audit.attacks import replicas, shadows
from pate_jax.audit.attacks.attack import OF_RECORDS, Attack, Flags, Way, of_counts, of_list
from pate_jax.audit.attacks.replicas import Replayed
from pate_jax.audit.attacks.roc import Measured, Promise, measured
from pate_jax.audit.attacks.shadows import Shadows
from pate_jax.runs.directory import RunDirectory

MANY = 128  # shadows from which on each record has a variance of its own
_LEAST = 0.01  # of a probability whose logit is fitted: fitted shares may be 0, and tails would rule the fit
Scores = Float[np.ndarray, "target record"]


class _Side(NamedTuple):
    """Mean and variance of each record over shadows on one side, without the target."""

    mean: Scores
    variance: Scores


def attacked(shadows: Shadows, promise: Promise, released: str = "table") -> list[Measured]:
    """The figures of all attacks that the shadows allow; `released` names what white box attacks see."""
    return [measured(name, scores, shadows.member, promise) for name, scores in each(shadows, released)]


def each(shadows: Shadows, released: str = "table") -> Iterator[tuple[str, Scores]]:
    """The scores of each attack by its name: larger for records that are taken to be members."""
    logits = logit(shadows.confidence)
    yield "loss", shadows.confidence
    yield "lira", lira(logits, shadows)
    yield "lira, offline", offline(logits, shadows)
    yield "rmia", rmia(shadows)
    if shadows.table is not None:
        yield released, lira(shadows.table, shadows)
    if shadows.known is not None:
        yield f"{released}, others known", shadows.known


def logit(confidence: Scores) -> Scores:
    """The logit of a label's probability.

    >>> np.round(logit(np.array([[0.5, 0.9, 0.0]])), 1).tolist()
    [[0.0, 2.2, -4.6]]
    """
    found: np.ndarray = special.logit(np.clip(confidence, _LEAST, 1 - _LEAST))
    return found


def lira(seen: Scores, shadows: Shadows) -> Scores:
    """The log-likelihood ratio of what is seen of each record, in against out."""
    inside, outside = _side(seen, shadows.member), _side(seen, ~shadows.member)
    found: np.ndarray = _log_density(seen, inside) - _log_density(seen, outside)
    return found


def offline(seen: Scores, shadows: Shadows) -> Scores:
    """How far what is seen of each record is above shadows without it, in standard deviations."""
    outside = _side(seen, ~shadows.member)
    found: np.ndarray = (seen - outside.mean) / np.sqrt(outside.variance)
    return found


def rmia(shadows: Shadows) -> Scores:
    """How many records that never are members the target raises less than each record, per such record.

    Records of one target between the same two of these are told apart by how much they are raised themselves.
    """
    member = shadows.member
    usual = (_side(shadows.confidence, member).mean + _side(shadows.confidence, ~member).mean) / 2
    always = np.ones_like(shadows.reference, bool)
    others = shadows.reference / np.maximum(_side(shadows.reference, always).mean, _LEAST)
    raised = shadows.confidence / np.maximum(usual, _LEAST)
    pairs = zip(others, raised, strict=True)
    beaten = np.stack([np.searchsorted(np.sort(z), x, side="right") for z, x in pairs])
    found: np.ndarray = (beaten + raised / (1 + raised)) / others.shape[1]
    return found


def _side(seen: Scores, there: np.ndarray) -> _Side:
    """Mean and variance over the shadows that are `there`, each target left out."""
    counted = np.where(there, seen - seen.mean(0), 0.0)
    number = there.sum(0) - there
    mean = (counted.sum(0) - counted) / number
    square = ((counted**2).sum(0) - counted**2) / number
    variance = np.maximum(square - mean**2, 0) * number / np.maximum(number - 1, 1)
    if len(seen) < MANY:
        variance = np.broadcast_to(variance.mean(1, keepdims=True), seen.shape)
    return _Side(mean + seen.mean(0), np.maximum(variance, 1e-30))


def _log_density(seen: Scores, side: _Side) -> Scores:
    """Of a normal law, up to a constant."""
    found: np.ndarray = -((seen - side.mean) ** 2) / side.variance / 2 - np.log(side.variance) / 2
    return found


class Guesses(NamedTuple):
    """What all attacks guessed."""

    attacks: list[Measured]

    @property
    def holds(self) -> bool:
        """Whether none shows more than the guarantee allows."""
        return all(one.holds for one in self.attacks)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        each = [{**one.to_dict(), "sentence": one.sentence()} for one in self.attacks]
        return {"warning": OF_RECORDS, "attacks": each}

    def text(self) -> str:
        """For a terminal."""
        runs = self.attacks[0].targets
        head = f"membership, by {runs} shadow runs on half of the records ({OF_RECORDS}):"
        return "\n".join([head, *(f"  {one.sentence()}" for one in self.attacks)])


def of_run(make: Callable[[RunDirectory], Replayed], run: RunDirectory, flags: Flags) -> Guesses:
    """The figures of all attacks on a run, whose pipeline `make` repeats in memory; nothing is written."""
    made, promise = make(run)
    seed = int.from_bytes(run.secret.derive("shadow runs")[:8], "big")
    remade = shadows.Remade(make, run.root)
    seen = shadows.played(made, flags.shadows, seed, engine=flags.engine, remade=remade)
    return Guesses(attacked(seen, promise, made.released))


def unfit(run: RunDirectory) -> str | None:
    """Why shadow runs of a run of teachers cannot be made in memory: those of linear ones can."""
    settings = run.record.read()
    if "data" not in settings:
        return (
            f"{run.root} was made from votes alone, so nobody's records are known: attack the runs of those "
            "who have the records"
        )
    if not settings.teacher.closed_form:
        return (
            f"the teachers of {run.root} learn step by step, so that each shadow run would take as long as "
            "the run itself: see `pate risk`, which gives the exact figures of single people. Runs of linear "
            "teachers and of crowds are repeated in memory"
        )
    return of_list(run) or of_counts(run)


ATTACK = Attack(
    "membership",
    {
        "teachers": Way(lambda *of: of_run(replicas.linear_teachers, *of), unfit),
        "crowd": Way(lambda *of: of_run(replicas.crowd, *of)),
    },
)
