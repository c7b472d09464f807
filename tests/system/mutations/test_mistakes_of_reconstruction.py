"""Mistakes by which a student holds more than public inputs and answers, or by which nobody would see it."""

import shutil
from functools import partial

import honest_runs
import pytest
import test_reconstruction
from catalogue import case, fails, is_caught, replaced, source

from pate_jax.audit.attacks import attributes, every, reconstruction
from pate_jax.errors import PateError
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.crowds import release, stages, steps
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.students import taught


def of_crowd(patch, folder):
    """What is found in a crowd's run whose student is trained by the code that is there."""
    run = RunDirectory(shutil.copytree(honest_runs.crowd("sums").root, folder))
    crowd = crowd_inputs.opened(run).at(len(steps.shown(run).tables))
    stages.learn(crowd, taught(run))[0].save(run.student)
    try:
        found = reconstruction.ATTACK.attacked(run, every.Flags())
    except PateError as error:  # with which the command ends
        return [str(error)]
    return [] if found.holds else [found.text()]


def exact(real):
    """The table before noise, in place of the noisy one."""
    return lambda run, round=1: (real(run, round)[0], release.load_table(run, round))


def of_seal(patch, folder):
    """What the test says that opens a file which is shut."""
    folder.mkdir(parents=True)
    return fails(partial(test_reconstruction.test_nothing_private_is_within_reach, folder))(patch, folder)


MISTAKES = [
    case(
        "the student learns from the exact table",
        replaced(steps, "load_noisy", exact),
        of_crowd,
        "released/private/table.npz does not exist",
    ),
    case(
        "files are not shut while the student is made again",
        source(
            reconstruction, "sealed", "_shut.extend(os.path.realpath(path) for path in paths)", "list(paths)"
        ),
        of_seal,
        "within_reach",
    ),
    case(
        "a student that is equally sure of all candidates is taken to know the true one",
        source(
            attributes, "_hits", "random.random(sure.shape) * (sure == sure.max(1, keepdims=True))", "sure"
        ),
        fails(test_reconstruction.test_ties_are_broken_at_random_and_equal_values_count_as_right),
        "ties_are_broken",
    ),
]


@pytest.mark.parametrize("mutation", MISTAKES)
def test_a_mistake_of_reconstruction_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)
