"""Shards, orders, scales and keys that depend on what they must not: a named test fails for each."""

from functools import partial

import jax
import numpy as np
import pytest
import small_runs
import test_codes
import test_ensemble
import test_folders
import test_forms
import test_noise
import test_own_files
import test_partition
import test_release
from catalogue import case, fails, in_a_folder, is_caught, made, replaced

from pate_jax.aggregate import noise
from pate_jax.data import columns, duplicates, folders, overlap, own_files, partition
from pate_jax.data.duplicates import Unique
from pate_jax.ensemble import teacher


def shuffle_and_cut(real):
    def assign(ids, teachers, *, key):
        order = np.random.default_rng(list(key)).permutation(len(ids))
        return (order * teachers // len(ids)).astype(np.int32)

    return assign


def records_for_users(real):
    return lambda part, by: part.ids


def padded_order(real):
    """Drawn for the padded length, which is that of the longest shard."""

    def order_of(key, epoch, count, length):
        stream = jax.random.fold_in(jax.random.fold_in(key, epoch), length)
        order = jax.random.permutation(stream, length)
        return order[jax.numpy.argsort(order >= count, stable=True)]

    return order_of


def epochs_of_the_longest(real):
    return lambda count, config: real(np.full_like(count, np.max(count)), config)


def scaled_by_private(real):
    def inputs(raw, categories, scales, read):
        arrays, _, unseen, plan = real(raw, categories, scales, read)
        return arrays, columns.standard(arrays["private"]), unseen, plan

    return inputs


def categories_of_private(real):
    def inputs(raw, categories, scales, read):
        plan = columns.plan
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(columns, "plan", lambda public, *declared: plan(raw["private"].inputs, *declared))
            return real(raw, categories, scales, read)

    return inputs


def names_of_private(real):
    """Columns are left out by what private rows hold."""

    def inputs(raw, categories, scales, read):
        left_out = columns.left_out
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                columns, "left_out", lambda public, *declared: left_out(raw["private"].inputs, *declared)
            )
            return real(raw, categories, scales, read)

    return inputs


def shape_of_private(real):
    """Images have the colours that private ones have."""

    def read(files, *more):
        shape_of = folders.shape_of
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(folders, "shape_of", lambda public, *side: shape_of(files["private"], *side))
            return real(files, *more)

    return read


def classes_of_private(real):
    """Classes are those that private labels show."""

    def read(files, *more):
        found = real(files, *more)
        return {**found, "public": found["public"]._replace(labels=found["private"].labels)}

    return read


def falls_back(real):
    """No entropy, no matter: seed 0."""

    def fresh():
        try:
            return real()
        except ValueError:
            return noise.seeded_key(0)

    return fresh


def every_row(real):
    return lambda inputs: Unique(np.arange(len(inputs)), np.arange(len(inputs)))


def private_records_in_the_pool(patch):
    """60 of 70 public inputs are private records, and nothing refuses them."""
    patch.setattr(small_runs, "public_images", small_runs.copied_images)
    patch.setattr(overlap, "refuse", lambda private, others: None)


def users_meet():
    test_partition.test_removing_one_user_changes_one_shard_and_users_never_meet_two_teachers()


def without_entropy():
    with pytest.MonkeyPatch.context() as patch:
        test_noise.test_without_entropy_there_is_no_key(patch, OSError)


CASES = [
    case(
        "shuffle and cut",
        replaced(partition, "assign", shuffle_and_cut),
        fails(test_partition.test_adding_to_the_longest_shard_leaves_the_others),
        "leaves_the_others",
    ),
    case(
        "one user's records in several shards",
        replaced(partition, "units_of", records_for_users),
        fails(users_meet),
        "users_meet",
    ),
    case(
        "an order that follows the longest shard",
        replaced(teacher, "order_of", padded_order),
        fails(test_ensemble.test_an_order_is_a_permutation_that_no_padding_changes),
        "no_padding",
    ),
    case(
        "epochs that follow the longest shard",
        replaced(teacher, "epochs_of", epochs_of_the_longest),
        fails(test_ensemble.test_steps_and_epochs_follow_from_a_teachers_own_count),
        "own_count",
    ),
    case(
        "scales fitted on private records",
        replaced(own_files, "_inputs", scaled_by_private),
        in_a_folder(test_own_files.test_tables_are_scaled_by_public_statistics),
        "public_statistics",
    ),
    case(
        "categories taken from private records",
        replaced(own_files, "_inputs", categories_of_private),
        in_a_folder(test_own_files.test_one_private_row_more_changes_no_other_row),
        "one_private_row",
    ),
    case(
        "codes taken from private records",
        replaced(own_files, "_inputs", categories_of_private),
        in_a_folder(test_codes.test_private_values_decide_nothing),
        "decide_nothing",
    ),
    case(
        "columns left out by private words",
        replaced(own_files, "_inputs", names_of_private),
        in_a_folder(test_forms.test_a_private_name_leaves_no_column_out),
        "no_column_out",
    ),
    case(
        "colours taken from private images",
        replaced(own_files, "_read", shape_of_private),
        in_a_folder(test_folders.colours_follow_from_the_public_part),
        "colours_follow",
    ),
    case(
        "classes taken from private labels",
        replaced(own_files, "_read", classes_of_private),
        in_a_folder(test_own_files.test_classes_come_from_public_or_test_labels_never_from_private_ones),
        "never_from_private",
    ),
    case(
        "a secure key that falls back to seed 0",
        replaced(noise, "fresh_key", falls_back),
        fails(without_entropy),
        "without_entropy",
    ),
    case(
        "private records in the public pool, held by the student",
        private_records_in_the_pool,
        made(small_runs.of_images),
        r"release: .*examples holds the inputs of \d\d private records",
        long=True,
    ),
    case(
        "one query asked many times",
        replaced(duplicates, "unique_queries", every_row),
        fails(partial(test_release.test_a_run_asks_each_chosen_input_once, "first")),
        "asks_each",
    ),
]


@pytest.mark.parametrize("mutation", CASES)
def test_a_mistake_of_plumbing_is_caught(mutation, tmp_path):
    for name in ("clean", "mutated"):
        (tmp_path / name).mkdir()
    is_caught(mutation, tmp_path)
