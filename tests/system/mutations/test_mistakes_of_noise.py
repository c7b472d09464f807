"""Noise that is not what was accounted for: keys, scales, ties, repeats and crashes."""

from functools import partial

import jax.numpy as jnp
import pytest
import small_runs
import test_aggregate
import test_budget
import test_noise
import test_register
from catalogue import case, fails, is_caught, made, replaced

from pate_jax import voting
from pate_jax.aggregate import answers, argmax, noise
from pate_jax.mechanisms import ConfidentGNMax, GNMax, LNMax
from pate_jax.runs import batches, budget, driver, plans, register, registration, secret

ANSWERED = made(small_runs.answered)
OVERLAPPING = made(small_runs.overlapping)
CRASHED = made(small_runs.crashed)
RESUMED = made(small_runs.resumed)
REGISTERED = made(small_runs.registered)


# ---- a run of the mutated program, looked at by the honest verifier


def half_the_scale(real):
    return lambda law, length=None: real(law._replace(scale=law.scale / 2), length)


def no_entropy(patch):
    patch.setattr(secret.secrets, "token_hex", lambda size: "00" * size)


def key_of(name):
    """The noise stream of every batch called the same."""
    return lambda patch: patch.setattr(secret, "stream", lambda *given: name)


def fresh_at_every_attempt(real):
    """The commitment is that of the run's stream, the noise is not."""

    def draw(run, line, votes):
        return answers.answer(line.event.mechanism, jnp.asarray(votes), key=noise.fresh_key())

    return draw


def answers_before_the_ledger(real):
    """Answers leave as soon as they are drawn; the ledger is written afterwards, or after a crash never."""

    def charged(method, *rest):
        line = real(method, *rest)
        method.issue(line)
        return line

    return charged


def drawn_again(real):
    """What the ledger holds is not re-issued: the batch is answered again with fresh noise."""

    issued = set()

    def issue(run, line):
        if line.noise not in issued:
            issued.add(line.noise)
            return real(run, line)
        votes = batches.load_batch(run, line).votes
        drawn = answers.answer(small_runs.MECHANISM, jnp.asarray(votes), key=noise.fresh_key())
        return real(run, line._replace(values=batches.ledger.pack(drawn.labels, drawn.answered)))

    return issue


def judged_by_votes(real):
    """How many queries are asked follows from what they cost on the votes that were cast."""

    def fit(run, gone, *, wanted, teachers, classes):
        room = real(run, gone, wanted=wanted, teachers=teachers, classes=classes)
        split = voting.load_votes(run.votes).votes.max() / teachers
        return min(wanted, int(room * (1 + split)))

    return fit


def after_the_votes_alone(real):
    """The noise of the first batch says nothing of what was asked."""
    return lambda number, event, exact, public="": real(number, event, exact)


def recorded_and_not_entered(run, plan, records, file):
    """The settings say that there is a register; the line that reserves the cost is not written."""
    run.record.agree("register", {"file": str(file.resolve()), "identity": register.read(file).identity})


def never_confirmed(patch):
    patch.setattr(registration, "enter", recorded_and_not_entered)
    patch.setattr(registration, "_note", lambda *_: None)


def of_the_last_alone(real):
    """What a second run costs is not added to what the first did."""
    return lambda plans, order: real(plans[-1:], order)


def twice_under_a_limit(patch, folder):
    folder.mkdir(parents=True)
    test = test_register.test_a_limit_refuses_what_would_exceed_it_before_anything_is_spent
    patch.setenv("XDG_STATE_HOME", str(folder / "state"))
    return fails(partial(test, folder, test_register.begun(folder / "register.jsonl")))(patch, folder)


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
        "the first batch's noise named after its votes alone",
        replaced(secret, "stream", after_the_votes_alone),
        ANSWERED,
        "noise: batch 1: .*another noise",
    ),
    case(
        "noise that no commitment binds",
        replaced(batches, "draw", fresh_at_every_attempt),
        ANSWERED,
        "noise: .*follow",
    ),
    case(
        "answers that leave before they are charged",
        replaced(driver, "_charged", answers_before_the_ledger),
        CRASHED,
        "ledger: .*(missing|does not show)",
    ),
    case(
        "a batch drawn again on resume",
        replaced(batches, "_issue", drawn_again),
        RESUMED,
        "answers",
    ),
    case("a run's cost not entered in its register", never_confirmed, REGISTERED, "budget: .*does not show"),
    case(
        "a second run on the same records not added",
        replaced(plans, "cost", of_the_last_alone),
        twice_under_a_limit,
        "DID NOT RAISE",
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
        long=True,
    )
)


@pytest.mark.parametrize("mutation", RUNS)
def test_a_run_of_other_noise_is_found(mutation, tmp_path):
    is_caught(mutation, tmp_path)


# ---- laws, by statistics


def truncated(source, counts, chance):
    """Laplace noise added into an array of whole numbers."""
    drawn = noise.draw(source, chance.noise, counts.shape)
    return jnp.argmax(counts + drawn.astype(counts.dtype), 0).astype(jnp.int32)


def first_of_the_tied(words, count):
    return jnp.zeros_like(words[0])


def no_noise(real):
    return lambda family, key, shape: 0 * real(family, key, shape)


def one_key(sampler, key, shape, *, stored=False):
    """Test and answer draw from one key: the noise of the test is that of the first class."""
    label = argmax.chance(sampler.noise.family, key, shape, stored=True)
    return answers._Chance(label, label.noise[0] if sampler.test is not None else None)


def of_24_bits(high, low):
    """A uniform number of float32: the tail ends near 5.4 sigma."""
    return high >> 31 == 1, ((high & 0x7FFFFFFF) >> 7).astype(jnp.float32) * jnp.float32(2**-25)


def set_to(place, name, value):
    return lambda patch: patch.setattr(place, name, value)


law_of = test_aggregate.test_outcomes_follow_the_exact_law_and_no_scale_beside_it
rate_of = test_aggregate.test_the_rate_of_answers_is_that_of_the_threshold_noise_alone
LAWS = [
    case(
        "Laplace noise truncated to whole numbers",
        set_to(argmax, "labels", truncated),
        fails(partial(law_of, LNMax(5.0))),
        "exact_law",
        traced=True,
        long=True,
    ),
    case(
        "the sampler's scale halved, by its law",
        replaced(noise, "source", half_the_scale),
        fails(partial(law_of, GNMax(5.0))),
        "exact_law",
        traced=True,
        long=True,
    ),
    case(
        "no noise on the threshold",
        replaced(noise, "standard", no_noise),
        fails(partial(rate_of, ConfidentGNMax(14, 4.0, 5.0))),
        "rate_of_answers",
        traced=True,
        long=True,
    ),
    case(
        "one noise for test and answer",
        set_to(answers, "_chance", one_key),
        fails(test_aggregate.test_noises_of_test_and_answer_are_independent),
        "independent",
        traced=True,
        long=True,
    ),
    case(
        "ties broken towards the lowest class",
        set_to(argmax, "share", first_of_the_tied),
        fails(partial(test_aggregate.test_ties_of_whole_numbers_are_broken_evenly, [4] * 3)),
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
]


@pytest.mark.parametrize("mutation", LAWS)
def test_another_law_is_noticed(mutation, tmp_path):
    is_caught(mutation, tmp_path)
