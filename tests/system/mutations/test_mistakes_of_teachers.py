"""Teachers that are not independent of each other, and students that saw more than the answers."""

import shutil
from dataclasses import replace
from functools import partial

import honest_runs
import jax
import numpy as np
import pytest
import small_runs
import test_own_nets
import test_ridge
import test_separation
from catalogue import case, fails, is_caught, made, replaced, source, verified

from pate_jax import ensemble, student
from pate_jax.aggregate import Answers
from pate_jax.audit import retraining
from pate_jax.audit import shards as separation
from pate_jax.audit.subject import Subject
from pate_jax.data import partition
from pate_jax.data.partition import Shards
from pate_jax.ensemble import feeding, programs, training
from pate_jax.ensemble import plan as plans
from pate_jax.runs import stages, students
from pate_jax.runs.answers import load_answers, load_asked
from pate_jax.runs.directory import RunDirectory

TRAINED = made(small_runs.trained)


# ---- what reaches a teacher


def fed(patch, folder):
    """What the verifier says of the feeding, on an honest run, when the feeding itself is wrong."""
    return [
        f"fed: {one.text}" for one in separation.fed(Subject(honest_runs.whole())) if one.outcome == "failed"
    ]


def of_all_records(real):
    """Each teacher draws a sample of all records in place of its own."""

    def take(data, ids, config):
        rows = np.random.default_rng(int(ids[0]) + 1).permutation(len(data.inputs))[: data.rows.shape[1]]
        return real(data._replace(rows=np.tile(rows, (len(data.rows), 1))), ids, config)

    return take


def of_the_next(real):
    """Teacher t is fed the shard of teacher t + 1."""
    return lambda data, ids, config: real(
        data._replace(rows=np.roll(data.rows, 1, 0), counts=np.roll(data.counts, 1)), ids, config
    )


def the_first_shard(real):
    """Every teacher gets the first part."""

    def divide(part, teachers, *, key, by="record"):
        shards = real(part, teachers, key=key, by=by)
        return Shards(np.tile(shards.rows[:1], (teachers, 1)), np.tile(shards.counts[:1], teachers))

    return divide


def unguarded(patch):
    """Every teacher gets the first part, and the checks on the way are gone too."""
    replaced(partition, "divide", the_first_shard)(patch)
    patch.setattr(partition, "_faults", lambda shards, part, *, key, by: [])
    patch.setattr(feeding, "_check_shards", lambda rows, counts, records: None)


def reshuffled(real):
    """The shards that are certified are not those that are trained on."""

    def fit(model, preprocessing, inputs, labels, shards, **more):
        other = Shards(np.roll(shards.rows, 1, axis=0), np.roll(shards.counts, 1))
        return real(model, preprocessing, inputs, labels, other, **more)

    return fit


def halved(patch, folder):
    """A run whose programs hold six teachers where the machine has room for one, by public numbers."""
    row = {**plans.row("table", "cpu"), "width": 6}
    with pytest.MonkeyPatch.context() as machine:
        machine.setattr(plans, "table", lambda: {name: {"other": row} for name in ("cpu", "other")})
        machine.setattr(plans, "device_bytes", lambda devices: 170)
        machine.setattr(plans, "free_bytes", lambda devices: 1 << 40)
        machine.setattr(training, "_needed", lambda machine, data: machine.plan.width * data.length)
        run = small_runs.trained(folder, seed=3)  # its longest shard holds 18 to 34 records
        patch.undo()
        return verified(run)


def cut_down(real):
    """The width is what memory allows, whatever the user said."""
    return lambda *rest: replace(real(*rest), width=2, wave=2)


SHARDS = [
    case(
        "every teacher gets the first shard",
        replaced(partition, "divide", the_first_shard),
        TRAINED,
        "refused: .*not a partition|refused: the shards are not",
        long=True,
    ),
    case("every teacher gets the first shard, unguarded", unguarded, TRAINED, "partition: ", long=True),
    case(
        "shards reshuffled among teachers",
        replaced(ensemble, "fit", reshuffled),
        TRAINED,
        "fed: .*other shards",
        long=True,
    ),
    case("a sample of all records at each step", replaced(feeding, "take", of_all_records), fed, "fed: "),
    case("the shard of another teacher", replaced(feeding, "take", of_the_next), fed, "fed: "),
    case(
        "a width that follows from the longest shard",
        source(training, "planned", "data._replace(length=length)", "data"),
        halved,
        "fed: 3 teachers shared a program where 6 were wanted; public numbers give 1",
    ),
    case(
        "a named width cut where memory is short",
        replaced(training, "planned", cut_down),
        made(partial(small_runs.trained, width=3)),
        "refused: width=3 but these teachers were begun with 2|fed: 2 teachers shared a program where 3",
        long=True,
    ),
]


@pytest.mark.parametrize("mutation", SHARDS)
def test_shared_records_are_found(mutation, tmp_path):
    is_caught(mutation, tmp_path)


# ---- what one teacher has of another


def summed(real):
    """What one device has learnt goes, a little, to all, as by a collective that nobody wrote down."""

    def several(step, plan, devices):
        batched = programs.inside(step, plan.width)

        def mixed(leaf):
            return leaf + 1e-3 * jax.lax.pmean(leaf, "all") if is_float(leaf) else leaf

        def run(states, shards):
            for _ in range(plan.steps_per_call):
                states = jax.tree.map(mixed, batched(states, shards))
            return states

        moving = programs.Mapped(run, devices, donate=(0,))
        moving._mapped = jax.pmap(run, axis_name="all", devices=devices, donate_argnums=(0,))
        return moving

    return several


def is_float(leaf):
    return jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating)


def leaking_batches(real):
    """Teachers of one vmap, or loop, share a little of each other, and no collective shows it."""

    def inside(*function):
        def run(*arguments):
            found = real(*function)(*arguments)
            return jax.tree.map(lambda leaf: leaf + 1e-3 * leaf.mean(0) if is_float(leaf) else leaf, found)

        return run

    return inside


def one_seed(real):
    def keys(key, teachers):
        return np.tile(real(key, teachers)[:1], (teachers, 1))

    return keys


def same_net(teacher):
    """The changed shard, on so many fake devices."""
    return fails(partial(test_separation.test_a_changed_shard_moves_its_own_teacher_only, *teacher))


def refused(what):
    """Own code that would join teachers is refused."""
    return fails(partial(test_own_nets.test_what_cannot_be_trained_is_refused_with_the_reason, what))


LEAKS = [
    case(
        "what own code does in a vmap is not read",
        source(feeding, "_read", "_SIDE_BY_SIDE in primitive", "primitive is None"),
        refused("all of a vmap"),
        "DID NOT RAISE",
    ),
    case(
        "arrays are weighed one by one",
        source(feeding, "_read", "sum(held.values()) > HELD", "np.size(array) > HELD"),
        refused("held in parts"),
        "DID NOT RAISE",
    ),
    case(
        "gradients summed over devices",
        replaced(programs, "_several", summed),
        same_net((2, 1)),
        "changed_shard",
        traced=True,
        long=True,
    ),
    case(
        "a collective in the training program",
        replaced(programs, "_several", summed),
        fails(partial(test_separation.test_the_compiled_training_programs_hold_no_collective, "table", 1)),
        "no_collective",
        traced=True,
        long=True,
    ),
    case(
        "teachers of one vmap mixed",
        replaced(programs, "inside", leaking_batches),
        same_net((1, 11)),
        "changed_shard",
        traced=True,
        long=True,
    ),
    case(
        "linear teachers of one loop mixed",
        replaced(programs, "in_turn", leaking_batches),
        fails(partial(test_ridge.test_a_changed_record_moves_its_own_teacher_only, test_ridge.PRIMAL, 1)),
        "changed_record",
        traced=True,
        long=True,
    ),
    case(
        "teachers of one seed",
        replaced(feeding, "keys_of", one_seed),
        TRAINED,
        "fed: .*one key for all",
        long=True,
    ),
]


@pytest.mark.parametrize("mutation", LEAKS)
def test_a_leak_between_teachers_is_noticed(mutation, tmp_path):
    is_caught(mutation, tmp_path)


# ---- statistics and students


def private_records_too(real):
    """The student learns from the private records and their labels as well."""

    def learn(run, config, dataset, asked):
        private, fit = dataset.private, student.fit

        def more(key, inputs, answers, config):
            both = np.concatenate([private.inputs, inputs.inputs])
            labels = np.concatenate([private.labels, np.asarray(answers.labels)])
            given = np.concatenate([np.ones(len(private.inputs), bool), np.asarray(answers.answered)])
            return fit(key, inputs._replace(inputs=both), Answers(labels, given), config)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(student, "fit", more)
            return real(run, config, dataset, asked)

    return learn


def votes_for_answers(real):
    """The student learns what the teachers said before any noise."""

    def learn(run, config, dataset, asked):
        with pytest.MonkeyPatch.context() as patch:
            votes, answers = load_asked(run).votes, load_answers(run)
            loud = answers._replace(
                labels=jax.numpy.asarray(votes.argmax(1)), answered=answers.answered | True
            )
            patch.setattr(students, "load_answers", lambda run: loud)
            return real(run, config, dataset, asked)

    return learn


def taught(patch, folder):
    """An honest run with its student trained again, and what the honest verifier says of that student."""
    shutil.copytree(honest_runs.whole(7).root, folder)
    run = RunDirectory(folder)
    run.results.unlink()
    with run.writing():
        stages.teach(run, honest_runs.STUDENT)
    patch.undo()
    return [
        f"student: {one.text}" for one in retraining.student_again(Subject(run)) if one.outcome == "failed"
    ]


REST = [
    case(
        "a student that saw the votes",
        replaced(students, "learn", votes_for_answers),
        taught,
        "student: ",
        long=True,
    ),
    case(
        "a student that saw private records",
        replaced(students, "learn", private_records_too),
        taught,
        "student: ",
        long=True,
    ),
]


@pytest.mark.parametrize("mutation", REST)
def test_what_else_reads_private_records_is_noticed(mutation, tmp_path):
    is_caught(mutation, tmp_path)
