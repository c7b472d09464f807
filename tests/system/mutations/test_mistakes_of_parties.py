"""Owners' votes that are joined although they must not be: a named test fails for each mistake."""

import tempfile
from functools import partial
from pathlib import Path

import pytest
import test_merge
from catalogue import case, fails, is_caught, replaced, source

from pate_jax.data import fingerprints
from pate_jax.runs.parties import union
from pate_jax.voting import merge


def refused(before, how, said):
    with tempfile.TemporaryDirectory() as folder:
        owners = test_merge.prepared(Path(folder))
        test_merge.test_bad_input_is_refused_and_nothing_is_written(before, how, said, owners)


SHARED = fails(partial(refused, test_merge.shared, {}, "share 1 record id"))
SALTS = fails(partial(refused, test_merge.other_salt, {}, "made with two salts"))
OTHERS = fails(partial(refused, None, {"ids": (1, 0, 2)}, "was made for other votes"))
MISFIT = {"ids": None, "digests": test_merge.IDS}
QUERIES = fails(partial(test_merge.test_votes_that_do_not_fit_are_refused, MISFIT, "the inputs of 7 of 7"))


@pytest.mark.parametrize(
    "mutation",
    [
        case(
            "people with two owners are not noticed",
            replaced(fingerprints, "overlaps", lambda real: lambda owners: []),
            SHARED,
            "DID NOT RAISE",
        ),
        case(
            "digests of two salts are compared",
            source(union, "_checked", "one.salt != found[0].salt", "False"),
            SALTS,
            "DID NOT RAISE",
        ),
        case(
            "ids of other votes are taken",
            source(union, "_check_belongs", "one.votes != digest", "False"),
            OTHERS,
            "DID NOT RAISE",
        ),
        case(
            "votes on other inputs are added up",
            replaced(merge, "_check_same", lambda real: lambda *_: None),
            QUERIES,
            "DID NOT RAISE",
        ),
    ],
)
def test_a_mistake_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)
