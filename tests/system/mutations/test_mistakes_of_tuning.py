"""Known mistakes with the profile of the best candidate: a named test fails for each."""

import shutil
from dataclasses import replace
from functools import partial

import honest_runs
import pytest
import test_tune
import test_tuning
from catalogue import case, fails, is_caught, replaced, source

from pate_jax.accounting import tuning
from pate_jax.accounting.tuning import Fixed, Tuned
from pate_jax.audit import tune as audit
from pate_jax.audit.subject import Subject
from pate_jax.runs.crowds import inputs, students
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.tune import candidates
from pate_jax.runs.tune.candidates import Choice, Place

LAW = test_tuning.LAWS[0]
exact = partial(test_tuning.test_the_exact_delta_of_the_best_never_exceeds_the_bound_and_comes_near, LAW)
figure = partial(test_tuning.test_the_figure_is_that_of_the_derivation, LAW)
ratio = test_tuning.test_a_ratio_bounds_every_rank

numbers = test_tune.test_numbers_and_settings_are_drawn_by_their_laws


def of_the_choice(name):
    """A test that examines the finished choice."""
    return lambda: getattr(test_tune, name)((honest_runs.choice(), None))


def resumed(patch, folder):
    """What is found out of a choice that lost its second candidate and its release, and was repeated."""
    shutil.copytree(honest_runs.choice().directory, folder)
    run = RunDirectory(folder)
    for place in (Place(folder, 2).home, run.release):
        shutil.rmtree(place)
    run.results.unlink()
    run.record.revise({}, ["chosen"])
    candidates.run(replace(honest_runs.choice(), out=folder))
    subject = Subject(run)
    found = [*audit.charged(subject), *audit.drawn(subject), *audit.chosen(subject)]
    return [one.text for one in found if one.outcome == "failed"]


def changed_records(patch, folder):
    """What the test of changed records says, on a copy of the choice."""
    shutil.copytree(honest_runs.choice().directory, folder)
    made = replace(honest_runs.choice(), out=folder), None
    name = "test_records_that_changed_since_a_choice_began_are_refused"
    return fails(lambda: getattr(test_tune, name)(made, patch, "private"))(patch, folder)


def exact_score(real):
    return lambda place: int(students.load_score(place)[0, 0])


def made_again(real):
    def publish(choice, number):
        choice.picks.append(choice.picks[number - 1])
        candidates.make(choice, len(choice.picks))
        return real(choice, len(choice.picks))

    return publish


CASES = [
    case(
        "the number of candidates is fixed and charged as random",
        replaced(tuning, "number_at", lambda real: lambda law, chance: 3),
        fails(numbers),
        "assert",
    ),
    case(
        "settings are not drawn uniformly",
        source(candidates, "_pick", "% settings", "% (settings + 1) % settings"),
        fails(numbers),
        "assert",
    ),
    case(
        "settings are drawn by the records",
        source(Choice, "setting", "[number - 1]]", "[number - 1] - (self.dataset is not None)]"),
        fails(of_the_choice("test_draws_do_not_read_the_records")),
        "assert",
    ),
    case(
        "the best is chosen by scores without noise",
        replaced(candidates, "score", exact_score),
        fails(of_the_choice("test_the_noisy_score_decides_and_is_no_exact_one")),
        "assert",
    ),
    case(
        "those who judge also vote",
        replaced(inputs, "is_candidate", lambda real: lambda run: False),
        fails(of_the_choice("test_all_candidates_hold_out_the_same_users_and_train_on_none_of_them")),
        "assert",
    ),
    case(
        "records may change between two candidates",
        replaced(candidates, "_check_same", lambda real: lambda known, records: None),
        changed_records,
        "Regex pattern did not match",
    ),
    case(
        "the winner is made again with fresh noise",
        replaced(candidates, "publish", made_again),
        resumed,
        "not as many",
    ),
    case(
        "all candidates share one secret",
        source(candidates, "make", 'f"candidate {number}"', '"candidate"'),
        resumed,
        "another secret",
    ),
    case(
        "a random number of candidates is charged as one",
        source(tuning.Tuned, "_ideal", "(one + often)", "one"),
        fails(figure),
        "assert",
    ),
    case(
        "each setting is tried and one is charged",
        source(tuning.Tuned, "__post_init__", "self.law.candidates != self.settings", "False"),
        fails(
            lambda: test_tuning.test_bad_input_is_named(lambda: Tuned(Fixed(1), 0.1, 5), "candidates=1 of 5")
        ),
        "DID NOT RAISE",
    ),
    case(
        "delta is not divided by the mean number",
        source(tuning, "log_delta", "math.log(law.mean) + ", ""),
        fails(exact),
        "assert",
    ),
    case(
        "the rank's own delta is left out",
        source(tuning, "_ends", "math.exp(profile(epsilon))", "0.0"),
        fails(ratio),
        "assert",
    ),
    case(
        "the law's shape is left out",
        source(tuning, "log_ratio", "(1 + law.shape) * ", ""),
        fails(ratio),
        "assert",
    ),
    case(
        "the figure of one candidate is that of the whole choice",
        source(tuning.Tuned, "_ideal", "delta / self.law.mean / _UP", "delta"),
        fails(figure),
        "assert",
    ),
]


@pytest.mark.parametrize("mutation", CASES)
def test_it_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)
