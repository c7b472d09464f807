"""Settings of DP-SGD that are chosen on private records, and paid for (docs/proofs/tuning.md).

Candidates are drawn from a list, a secret number of times. Each trains on the records that are not held out,
and a noisy count says how many of the others its net gets right. Only the best is returned. What it costs is
the cost of the whole choice: a candidate's profile, by composed privacy losses, is kept at or below that of a
Gaussian mechanism at both places where the proof reads it. So no candidate's own epsilon may be published.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int

from pate_jax.accounting import tuning
from pate_jax.accounting.tuning import Tuned
from pate_jax.aggregate import noise as keys
from pate_jax.baselines.dpsgd import calibration
from pate_jax.baselines.dpsgd.settings import Settings
from pate_jax.baselines.dpsgd.training import Fitted, fit
from pate_jax.errors import PateError
from pate_jax.mechanisms import Noise
from pate_jax.models import Model
from pate_jax.models.flax_nets import Preprocessing
from pate_jax.system import progress

HELD_OUT = calibration.rate_of(1, 10)  # the chance of each record to judge and not to train
_SHAPE = 1.0  # of the law of the number of candidates: geometric
_JUDGES, _NUMBER, _CANDIDATES = 0, 1, 2  # children of the key
_PICK, _TRAINING, _SCORE = 0, 1, 2  # of a candidate's key


class Best(NamedTuple):
    """The best candidate; its epsilons are those of the whole choice."""

    fitted: Fitted
    settings: Settings  # from the list, with the noise that the choice needs
    tuned: Tuned


def best_of(
    inputs: np.ndarray,
    labels: np.ndarray,
    classes: int,
    listed: Sequence[Settings],
    *,
    key: Array,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    candidates: float = 10.0,
    preprocessing: Preprocessing | None = None,
    model: Model | None = None,
) -> Best:
    """The best of about `candidates` trainings, each by settings drawn from a list.

    Epsilon, delta, relation and noise of the settings are replaced by those of the choice. How long it takes
    tells how many candidates there were, which has to stay secret.
    """
    key, tuned = keys.check_key(key), planned(len(listed), epsilon, delta, candidates)
    judges = np.zeros(len(inputs), bool)
    judges[calibration.draw(jax.random.fold_in(key, _JUDGES), len(inputs), HELD_OUT)] = True
    fitting = [within(one, tuned, delta, int((~judges).sum())) for one in listed]
    best: tuple[int, Fitted, Settings] | None = None
    with progress.quiet():
        for own in _keys(key, tuned):
            settings = fitting[_number(jax.random.fold_in(own, _PICK)) % len(fitting)]
            fitted = fit(
                inputs[~judges], labels[~judges], classes, settings,
                key=jax.random.fold_in(own, _TRAINING), preprocessing=preprocessing, model=model,
            )  # fmt: skip
            right = int((fitted.probabilities(inputs[judges]).argmax(1) == labels[judges]).sum())
            score = right + error(tuned, jax.random.fold_in(own, _SCORE))
            if best is None or score > best[0]:
                best = score, fitted, settings
    if best is None:
        raise RuntimeError("a law of at least one candidate has drawn none")
    spent = tuned.epsilon(delta)
    return Best(dataclasses.replace(best[1], epsilon=spent, replaced=spent, delta=delta), best[2], tuned)


def planned(settings: int, epsilon: float, delta: float, candidates: float) -> Tuned:
    """The choice that costs epsilon: how many candidates there are on average, and what each may cost.

    >>> round(planned(2, 1.0, 1e-5, 10.0).mu, 3)
    0.169
    """
    if settings < 2:
        raise PateError(f"settings={settings} of a list are no choice: give two or more, or use `fit`")
    return tuning.tuned_for(tuning.negative_binomial(candidates, _SHAPE), settings, epsilon, delta)


def within(settings: Settings, tuned: Tuned, delta: float, records: int) -> Settings:
    """The same with the least noise whose profile is small enough where the proof reads it."""
    free = dataclasses.replace(settings, neighbours="changed", noise_multiplier=None)
    both = tuning.points(tuned, delta)
    if both[0].delta < both[-1].delta:  # what is kept for the sampler's noise is a share of the latter
        raise PateError(f"delta={delta:g} is too large for so few candidates: lower delta, or raise epsilon")
    plans = [calibration.plan(at.epsilon, at.delta, records, free) for at in both]
    widest, left = max(plan.noise_multiplier for plan in plans), both[-1]
    return dataclasses.replace(free, epsilon=left.epsilon, delta=left.delta, noise_multiplier=widest)


def error(tuned: Tuned, key: Array) -> int:
    """The noise of a score, which a record that judges moves by one at most: mu-Gaussian-DP."""
    return int(np.asarray(keys.draw(Noise("rounded_gaussian", max(1.0, 1 / tuned.mu)), key, (1,)))[0])


def _keys(key: Array, tuned: Tuned) -> list[Array]:
    """A key for each candidate; their number follows from the key, and is secret."""
    chance = (_number(jax.random.fold_in(key, _NUMBER)) >> 11) / 2**53
    each = jax.random.fold_in(key, _CANDIDATES)
    return [jax.random.fold_in(each, one) for one in range(tuning.number_at(tuned.law, chance))]


def _number(key: Array) -> int:
    """A whole number of 64 random bits."""
    words: Int[np.ndarray, " two"] = np.asarray(jax.random.bits(key, (2,), np.uint32))
    return int(words[0]) << 32 | int(words[1])
