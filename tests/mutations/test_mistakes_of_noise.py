"""Noise that is not what was accounted for: keys, scales, ties, repeats and crashes."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
import small_runs
import test_aggregate
import test_budget
import test_empirical_privacy
import test_noise
import test_release
from catalogue import case, fails, is_caught, made, replaced

from pate_jax import aggregate, batches, budget, noise, plurality, queries, rundir, voting
from pate_jax.mechanisms import ConfidentGNMax, GNMax, LNMax
from pate_jax.queries import Unique

ANSWERED = made(small_runs.answered)
OVERLAPPING = made(small_runs.overlapping)
CRASHED = made(small_runs.crashed)
RESUMED = made(small_runs.resumed)


# ---- a run of the mutated program, looked at by the honest verifier


def half_the_scale(real):
    return lambda law, length=None: real(law._replace(scale=law.scale / 2), length)


def no_entropy(patch):
    patch.setattr(rundir.secrets, "token_hex", lambda size: "00" * size)


def key_of(name):
    """The noise stream of every batch called the same."""
    return lambda patch: patch.setattr(batches, "stream", lambda mechanism, digest, batch: name)


def fresh_at_every_attempt(real):
    """The commitment is that of the run's stream, the noise is not."""

    def draw(run, mechanism, votes, batch=1):
        return aggregate.answer(mechanism, jnp.asarray(votes), key=noise.fresh_key())

    return draw


def answers_before_the_ledger(real):
    """Answers leave as soon as they are drawn; the ledger is written afterwards, or after a crash never."""

    def charge(run, mechanism, batch, gone):
        entry = real(run, mechanism, batch, gone)
        batches._issue(run, entry)
        return entry

    return charge


def drawn_again(real):
    """What the ledger holds is not re-issued: the batch is answered again with fresh noise."""

    def issue(run, entry):
        votes = batches._load(run, entry["batch"], entry["asked"]).votes
        drawn = aggregate.answer(small_runs.MECHANISM, jnp.asarray(votes), key=noise.fresh_key())
        real(run, {**entry, "answers": batches.ledger.pack(drawn.labels, drawn.answered)})

    return issue


def judged_by_votes(real):
    """How many queries are asked follows from what they cost on the votes that were cast."""

    def fit(run, gone, *, wanted, teachers, classes):
        room = real(run, gone, wanted=wanted, teachers=teachers, classes=classes)
        split = voting.load_votes(run.votes).votes.max() / teachers
        return min(wanted, int(room * (1 + split)))

    return fit


def nothing_known(real):
    return lambda run, by_digest: {}


RUNS = [
    case(
        "half the noise that is accounted for",
        replaced(noise, "source", half_the_scale),
        ANSWERED,
        "noise: .*follow",
    ),
    case("a default secret of zeros", no_entropy, ANSWERED, "keys: .*entropy"),
    case("one key for all batches", key_of("noise"), ANSWERED, "noise: .*another noise"),
    case(
        "the key of the order of records used for noise",
        key_of("teachers"),
        ANSWERED,
        "noise: .*another noise",
    ),
    case(
        "noise that no commitment binds",
        replaced(batches, "draw", fresh_at_every_attempt),
        ANSWERED,
        "noise: .*follow",
    ),
    case(
        "answers that leave before they are charged",
        replaced(batches, "_charge", answers_before_the_ledger),
        CRASHED,
        "ledger: .*(missing|does not show)",
    ),
    case(
        "a batch drawn again on resume",
        replaced(batches, "_issue", drawn_again),
        RESUMED,
        "ledger: .*answers",
    ),
    case(
        "an input that was answered asked again",
        replaced(batches, "_known", nothing_known),
        OVERLAPPING,
        "queries: .*in common",
    ),
]


def any_votes(patch, folder):
    test = partial(test_budget.test_how_many_are_asked_does_not_depend_on_the_votes, folder)
    return fails(test)(patch, folder)


RUNS.append(
    case(
        "a refusal judged by the votes",
        replaced(budget, "fit", judged_by_votes),
        any_votes,
        "does_not_depend",
    )
)


@pytest.mark.parametrize("mutation", RUNS)
def test_a_run_of_other_noise_is_found(mutation, tmp_path):
    is_caught(mutation, tmp_path)


# ---- laws, by statistics


def truncated(source, counts, chance):
    """Laplace noise added into an array of whole numbers."""
    values, _ = plurality._made(source.family, chance.noise, counts.shape[::-1], in_line=True)
    noisy = [
        count + (source.scale * value).astype(jnp.int32) for count, value in zip(counts, values, strict=True)
    ]
    return jnp.argmax(jnp.stack(noisy), 0).astype(jnp.int32)


def same_for_all_queries(family, key, shape):
    return jnp.broadcast_to(noise_of_one(family, key, shape), shape)


def noise_of_one(family, key, shape):
    return noise._gaussian(key, (*shape[:-1], 1))


def first_of_the_tied(words, count):
    return jnp.zeros_like(words[0])


def one_key(sampler, key, shape, *, stored=False):
    """Test and answer draw from one key: the noise of the test is that of the first class."""
    label = plurality.chance(sampler.noise.family, key, shape, stored=True)
    values = label.noise if sampler.test is not None else None
    return aggregate._Chance(label, None if values is None else values[0])


def of_24_bits(high, low):
    """A uniform number of float32: the tail ends near 5.4 sigma."""
    return high >> 31 == 1, ((high & 0x7FFFFFFF) >> 7).astype(jnp.float32) * jnp.float32(2**-25)


def falls_back(real):
    """No entropy, no matter: seed 0 and a warning."""

    def fresh():
        try:
            return real()
        except Exception:
            return noise.seeded_key(0)

    return fresh


def set_to(place, name, value):
    return lambda patch: patch.setattr(place, name, value)


def without_entropy():
    with pytest.MonkeyPatch.context() as patch:
        test_noise.test_without_entropy_there_is_no_key(patch, OSError)


def every_row(inputs):
    rows = range(len(inputs))
    return Unique(np.array(rows), np.array(rows))


losses = test_empirical_privacy.test_measured_losses_never_exceed_the_exact_ones
LAWS = [
    case(
        "Laplace noise truncated to whole numbers",
        set_to(plurality, "labels", truncated),
        fails(partial(losses, LNMax(2.0))),
        "measured_losses",
        traced=True,
        long=True,
    ),
    case(
        "the sampler's scale halved",
        replaced(noise, "source", half_the_scale),
        fails(partial(losses, GNMax(2.0))),
        "measured_losses",
        traced=True,
        long=True,
    ),
    case(
        "no noise on the threshold",
        set_to(noise, "scaled", lambda source, chance: 0 * chance),
        fails(partial(losses, ConfidentGNMax(7, 3.0, 2.0))),
        "measured_losses",
        traced=True,
        long=True,
    ),
    case(
        "one noise for test and answer",
        set_to(aggregate, "_chance", one_key),
        fails(test_aggregate.test_noises_of_test_and_answer_are_independent),
        "independent",
        traced=True,
        long=True,
    ),
    case(
        "ties broken towards the lowest class",
        set_to(plurality, "share", first_of_the_tied),
        fails(partial(test_aggregate.test_ties_of_whole_numbers_are_broken_evenly, 3)),
        "broken_evenly",
        traced=True,
        long=True,
    ),
    case(
        "normals of 24 bits, which end near 5.4 sigma",
        set_to(noise, "_coin_and_half", of_24_bits),
        fails(test_noise.test_tails_reach_as_far_as_the_slack_claims),
        "tails_reach",
        long=True,
    ),
    case(
        "a secure key that falls back to seed 0",
        replaced(noise, "fresh_key", falls_back),
        fails(without_entropy),
        "without_entropy",
    ),
    case(
        "one query asked many times",
        set_to(queries, "unique_queries", every_row),
        fails(partial(test_release.test_a_run_asks_each_chosen_input_once, "first")),
        "asks_each",
    ),
]


@pytest.mark.parametrize("mutation", LAWS)
def test_another_law_is_noticed(mutation, tmp_path):
    is_caught(mutation, tmp_path)
