"""Public parts that were swapped, people in both parts, noise beside a release: each mistake is caught."""

import tempfile
from pathlib import Path

import pytest
import test_overlap
import test_public
import test_publication
from catalogue import case, fails, is_caught, replaced, source

from pate_jax.audit import public
from pate_jax.data import overlap
from pate_jax.runs import limits, public_part, publication
from pate_jax.system import storage


def in_a_folder(test, *arguments):
    """A test that takes a fresh folder last."""

    def run():
        with tempfile.TemporaryDirectory() as folder:
            test(*arguments, Path(folder))

    run.__qualname__ = test.__qualname__
    return run


def single_file(kind):
    return in_a_folder(
        test_publication.test_any_single_file_of_a_release_stops_noise_that_its_ledger_does_not_show, kind
    )


def pool_of(kind):
    return in_a_folder(
        test_public.test_a_changed_pool_is_refused_when_a_run_goes_on_and_found_by_verify, kind
    )


def nothing(real):
    return lambda *arguments, **named: None


swapped = in_a_folder(
    test_public.test_a_pool_that_is_swapped_between_a_stop_and_the_repeated_command_is_refused, "sums"
)
numbered = in_a_folder(test_overlap.test_ids_that_are_only_row_numbers_are_nobodys)
batch = in_a_folder(
    test_publication.test_a_batch_is_not_asked_where_the_release_is_of_one_that_the_ledger_lacks
)
limit = in_a_folder(test_publication.test_a_limit_is_not_drawn_again_beside_one_that_was_published)


copied = in_a_folder(test_overlap.test_near_copies_without_ids_are_warned_of_and_honest_pools_are_not)
kept = in_a_folder(
    test_public.test_what_a_run_keeps_of_its_public_side_fails_where_it_does_not_come_out_again,
    "neighbours",
    "space/middle",
)


CASES = [
    *(
        case(
            f"noise is drawn beside a release of {kind}",
            replaced(publication, "refuse_unshown", nothing),
            fails(single_file(kind)),
            "DID NOT RAISE|noise would leave",
        )
        for kind in ("votes from elsewhere", "sums", "a choice of settings", "a party")
    ),
    case(
        "only a statement stops noise beside a release",
        source(storage, "files", 'folder.rglob("*")', 'folder.rglob("statement.json")'),
        fails(single_file("sums")),
        "DID NOT RAISE",
    ),
    case(
        "any ledger with a line shows any release",
        source(publication, "_is_shown", 'shows(storage.read_json(path, "statement"))', "True"),
        fails(batch),
        "DID NOT RAISE",
    ),
    case(
        "a sanitised limit is drawn beside one that was lost",
        source(limits, "_shows", "limit in (None, *made)", "True"),
        fails(limit),
        "DID NOT RAISE",
    ),
    case(
        "a run goes on with another public part",
        replaced(public_part, "is_other", lambda real: lambda settings, dataset: False),
        fails(swapped),
        "Regex pattern did not match",
    ),
    case(
        "the digest leaves users out",
        source(public_part, "_texts", '"users": public.users', '"users": None'),
        fails(test_public.test_every_change_of_one_public_value_label_id_or_user_is_another_digest),
        "assert|digest",
    ),
    case(
        "the digest leaves labels out",
        source(public_part, "digest", "public.features, labels", "public.features, None"),
        fails(test_public.test_every_change_of_one_public_value_label_id_or_user_is_another_digest),
        "assert|digest",
    ),
    case(
        "verify calls every public part the recorded one",
        source(public, "recorded", "public_part.is_other(settings, inputs.dataset)", "False"),
        fails(pool_of("sums")),
        "assert",
    ),
    case(
        "spaces that do not come out again are rounding",
        replaced(public, "_near", lambda real: lambda one, other: True),
        fails(kept),
        "assert",
    ),
    case(
        "people in both parts go unnoticed",
        replaced(overlap, "people", lambda real: lambda dataset, other: {}),
        fails(numbered),
        "DID NOT RAISE",
    ),
    case(
        "ids are compared as they are written",
        replaced(overlap, "_plain", lambda real: lambda name: name),
        fails(numbered),
        "Regex pattern did not match",
    ),
    case(
        "altered copies are as far as others",
        source(overlap, "copies", "2 * chance + 2", "len(near)"),
        fails(copied),
        "assert",
    ),
]


@pytest.mark.parametrize("mutation", CASES)
def test_a_mistake_of_publication_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)
