"""Votes of several owners in one file: what is joined, and every reason for which nothing is."""

import honest_runs
import numpy as np
import pytest
from commands import call

from pate_jax import accounting, voting
from pate_jax.data import fingerprints
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.runs import batches
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.parties import merged_votes
from pate_jax.system import storage
from pate_jax.voting.merge import merge

QUERIES, CLASSES = 7, 3
IDS = np.array([f"query-{row}" for row in range(QUERIES)])


def votes_of(teachers, seed, **changes):
    labels = np.random.default_rng(seed).integers(0, CLASSES, (teachers, QUERIES)).astype(np.int16)
    counts = np.eye(CLASSES, dtype=np.int32)[labels].sum(0)
    made = voting.Votes(counts, labels, IDS, np.arange(QUERIES) % CLASSES, np.char.add("digest of ", IDS))
    return made._replace(**changes)


def prepared(folder):
    """Three owners' files: votes of 5, 4 and 6 teachers, and digests of ids that nobody shares."""
    fingerprints.new_salt(folder / "salt.txt")
    for place, teachers in enumerate((5, 4, 6)):
        voting.save_votes(folder / f"{place}.npz", votes_of(teachers, place))
        rows = "".join(f"p{place}{row},n{place}\n" for row in range(9))
        (folder / f"{place}.csv").write_text("patient,nurse\n" + rows)
        identify(folder, place)
    return folder


@pytest.fixture
def owners(tmp_path):
    return prepared(tmp_path)


def identify(folder, place, salt="salt.txt", by="record"):
    private = merged_votes.Private(folder / f"{place}.csv", by, "patient", "nurse")
    merged_votes.identify(folder / f"{place}.npz", private, salt=folder / salt, out=folder / f"{place}.ids")


def joined(folder, files=(0, 1, 2), ids=(0, 1, 2), relation="record"):
    named, shown = [folder / f"{place}.npz" for place in files], [folder / f"{place}.ids" for place in ids]
    return merged_votes.join(named, shown, relation, folder / "joined")


def test_the_commands_do_it(owners, capsys, monkeypatch):
    monkeypatch.chdir(owners)
    assert call("party", "salt", "new.txt") == 0
    for place in "012":
        given = "--private", f"{place}.csv", "--id-column", "patient", "--out", f"{place}.ids"
        assert call("party", "ids", f"{place}.npz", "--salt", "new.txt", *given) == 0
    files, ids = [[f"{place}{kind}" for place in "012"] for kind in (".npz", ".ids")]
    assert call("merge", *files, "--relation", "record", "--out", "joined", "--ids", *ids) == 0
    out = capsys.readouterr().out
    assert "15 teachers of 3 owners" in out and "next: pate aggregate joined/votes.npz MECHANISM" in out
    assert call("party", "salt", "new.txt") == 2
    assert "share it with the other owners" in capsys.readouterr().err


def test_the_joined_votes_are_those_of_all_teachers(owners):
    certificate = joined(owners)
    found = voting.load_votes(owners / "joined" / "votes.npz")
    parts = [votes_of(teachers, place) for place, teachers in enumerate((5, 4, 6))]
    assert np.array_equal(found.teacher_labels, np.concatenate([part.teacher_labels for part in parts]))
    assert np.array_equal(found.votes, sum(part.votes for part in parts)) and (found.votes.sum(1) == 15).all()
    assert found.ids.tolist() == IDS.tolist() and found.digests is not None and found.labels is not None
    assert [owner["teachers"] for owner in certificate["owners"]] == [5, 4, 6]
    assert [owner["ids"] for owner in certificate["owners"]] == [9, 9, 9]
    assert joined(owners) == certificate  # again, with the same result


def test_the_answers_of_joined_votes_cost_what_those_of_one_owner_do(owners):
    joined(owners)
    votes, run = voting.load_votes(owners / "joined" / "votes.npz"), RunDirectory(owners / "run")
    with run.writing():
        batches.adopt(run, votes, None, relation="record")
        answers = batches.answer(run, DiscreteGaussianMax(4.0))
    whole = votes_of(5, 0).votes + votes_of(4, 1).votes + votes_of(6, 2).votes
    costs = [
        accounting.statement(
            DiscreteGaussianMax(4.0), counts, None, 1e-5, pld=False, private=True
        ).headline.epsilon
        for counts in (votes.votes, whole)
    ]
    assert len(answers.labels) == QUERIES and costs[0] == costs[1]


def test_a_party_is_an_owner_with_one_teacher(owners):
    """The whole vote of an owner of five teachers is five votes of a query, where one was charged."""
    with pytest.raises(PateError, match="5 teachers, and --relation party covers an owner's whole vote"):
        joined(owners, relation="party", ids=())
    assert not (owners / "joined").exists()
    for place in (0, 1):
        voting.save_votes(owners / f"{place}.npz", votes_of(1, place))
    made = joined(owners, files=(0, 1), relation="party", ids=())
    assert made["salt"] is None and [owner["teachers"] for owner in made["owners"]] == [1, 1]


def test_a_link_to_joined_votes_is_not_elsewhere(owners):
    joined(owners)
    (owners / "link.npz").symlink_to(owners / "joined" / "votes.npz")
    assert merged_votes.beside(owners / "link.npz")["relation"] == "record"
    assert merged_votes.beside(owners / "0.npz") is None


@pytest.mark.parametrize("number", ["1", None, [1]])
def test_a_damaged_certificate_is_a_fault_and_no_error(number):
    made = {"relation": "party", "salt": None, "votes": "a", "owners": [{"teachers": number}]}
    assert [fault[:45] for fault in merged_votes.faults(made, "party", "a", 1)] == [
        "the certificate of the joined votes is damage"
    ]


def test_the_same_votes_are_not_counted_twice(owners):
    """Not by another path, type or order of the teachers, nor with ids that differ."""
    again = votes_of(5, 0)
    again = again._replace(votes=again.votes.astype(np.int64), teacher_labels=again.teacher_labels[::-1])
    np.savez(owners / "1.npz", votes=again.votes, teacher_labels=again.teacher_labels, ids=IDS)
    identify(owners, 1)
    with pytest.raises(PateError, match="hold the same votes on all 7 queries"):
        joined(owners)


def test_a_run_knows_whose_ids_are_meant(tmp_path):
    """The users of its private records, here, since its teachers were divided by user."""
    run = honest_runs.whole(7)
    fingerprints.new_salt(tmp_path / "salt")
    given = {"salt": tmp_path / "salt", "out": tmp_path / "ids"}
    found = merged_votes.identify(run.root, merged_votes.Private(), **given)
    assert (found.by, len(found.digests)) == ("user", 40)
    assert found.votes == storage.digest(voting.load_votes(run.votes).votes)
    with pytest.raises(PateError, match="leave out --private"):
        merged_votes.identify(run.root, merged_votes.Private(tmp_path / "x.csv"), **given)


def test_ids_that_are_row_numbers_cover_contents_alone(owners):
    """Of such a run a removed record moves the votes of many teachers, so its file of ids says so."""
    run, given = honest_runs.without_ids(), {"salt": owners / "salt.txt", "out": owners / "1.ids"}
    assert merged_votes.identify(run.root, merged_votes.Private(), **given).by == "contents"
    fingerprints.save(
        owners / "1.ids", fingerprints.load(owners / "1.ids")._replace(votes=_digest(owners, 1))
    )
    with pytest.raises(PateError, match="declare --relation contents"):
        joined(owners)
    assert joined(owners, relation="contents")["relation"] == "contents"


@pytest.mark.parametrize("numbered", [(1,), (0, 2)])
def test_row_numbers_are_not_compared_and_that_is_said(numbered, owners, capsys):
    """They are the same with every owner, and say nothing about who is with two."""
    for place in numbered:
        rows = [str(row) for row in range(9)]
        given = {"by": "contents", "salt": bytes(32), "votes": _digest(owners, place)}
        made = fingerprints.made(rows, **given)._replace(salt=fingerprints.load(owners / "0.ids").salt)
        fingerprints.save(owners / f"{place}.ids", made)
    assert joined(owners, relation="contents")["relation"] == "contents"
    warning = " ".join(capsys.readouterr().err.split())
    assert "are row numbers, so nobody can tell" in warning
    assert [f"{place}.npz" in warning for place in range(3)] == [place in numbered for place in range(3)]


def _digest(folder, place):
    return storage.digest(voting.load_votes(folder / f"{place}.npz").votes)


def test_labels_of_teachers_are_dropped_where_one_owner_has_none():
    parts = [votes_of(5, 0), votes_of(4, 1, teacher_labels=None, digests=None, labels=None)]
    found = merge(parts, ["A", "B"])
    assert found.teacher_labels is None and found.digests is None and found.ids is not None
    assert found.labels is not None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ids": None, "digests": None}, "do not all name their queries in one way"),
        ({"ids": IDS[::-1]}, "the same queries in another order (the first at row 0)"),
        ({"ids": np.char.add("x", IDS)}, "the ids of 7 of 7 rows differ, the first in row 0"),
        ({"digests": np.array(["else", *IDS[1:]])}, "are on other queries: the inputs of 7 of 7"),
        ({"labels": np.zeros(QUERIES, np.int32)}, "the true label of row 1 is 1, and B that it is 0"),
        ({"votes": np.full((QUERIES, CLASSES + 1), 2)}, "A has 3 classes and B has 4"),
        ({"votes": np.full((QUERIES - 1, CLASSES), 2)}, "A has 7 queries and B has 6"),
    ],
)
def test_votes_that_do_not_fit_are_refused(changes, said):
    with pytest.raises(PateError) as refused:
        merge([votes_of(5, 0), votes_of(4, 1, **changes)], ["A", "B"])
    assert said in str(refused.value)


def test_one_owner_and_no_query_are_refused():
    with pytest.raises(PateError, match="at least two owners"):
        merge([votes_of(5, 0)], ["A"])
    nothing = voting.Votes(np.zeros((0, 3), np.int32), ids=IDS[:0])
    with pytest.raises(PateError, match="A holds votes on no query"):
        merge([nothing, nothing], ["A", "B"])


def shared(folder):
    (folder / "1.csv").write_text((folder / "1.csv").read_text() + "p04,n7\n")
    identify(folder, 1)


def other_salt(folder):
    fingerprints.new_salt(folder / "other.txt")
    identify(folder, 1, salt="other.txt")


def by_user(folder):
    identify(folder, 1, by="user")


def voted_again(folder):
    voting.save_votes(folder / "1.npz", votes_of(4, 77))


def damaged(folder):
    voting.save_votes(folder / "1.ids", votes_of(4, 1))


def emptied(folder):
    kept = fingerprints.load(folder / "1.ids")
    fingerprints.save(folder / "1.ids", kept._replace(digests=kept.digests[:0]))


def twice(folder):
    kept = fingerprints.load(folder / "1.ids")
    fingerprints.save(folder / "1.ids", kept._replace(digests=kept.digests[[0, 0, 1]]))


@pytest.mark.parametrize(
    ("before", "how", "said"),
    [
        (shared, {}, "share 1 record id, and whoever is with two owners moves two votes"),
        (other_salt, {}, "were made with two salts"),
        (by_user, {}, "holds ids of users, and --relation record is about records"),
        (voted_again, {}, "was made for other votes than those in"),
        (damaged, {}, "is not a fingerprints file"),
        (emptied, {}, "holds no digests of ids"),
        (twice, {}, "holds a digest twice"),
        (None, {"ids": (1, 0, 2)}, "was made for other votes than those in"),
        (None, {"ids": (0, 1)}, "2 files of ids are given for 3 votes files"),
        (None, {"ids": ()}, "0 files of ids are given for 3 votes files"),
        (None, {"relation": "party"}, "leave out --ids"),
        (None, {"relation": "user"}, "holds ids of records, and --relation user is about users"),
        (None, {"files": (0, 0, 2), "ids": (0, 0, 2)}, "0.npz hold the same votes"),
        (None, {"files": (0, 9, 2)}, "9.npz does not exist"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(before, how, said, owners):
    if before:
        before(owners)
    with pytest.raises(PateError) as refused:
        joined(owners, **how)
    assert said in str(refused.value) and not (owners / "joined").exists()


def test_a_folder_of_other_votes_is_not_overwritten(owners):
    joined(owners)
    with pytest.raises(PateError, match="holds the votes of other files"):
        joined(owners, files=(0, 1), ids=(0, 1))


@pytest.mark.parametrize(
    ("file", "by", "columns", "salt", "said"),
    [
        ("0.csv", "record", {"id_column": "bed"}, "salt.txt", "has no 'bed'; it holds nurse, patient"),
        ("0.csv", "user", {}, "salt.txt", "name the column of the users with --user-column"),
        ("0.csv", "record", {"id_column": "patient"}, "0.csv", "holds no salt (64 hexadecimal digits)"),
        (None, "record", {}, "salt.txt", "--private is missing"),
    ],
)
def test_ids_that_cannot_be_digested_are_refused(file, by, columns, salt, said, owners):
    private = merged_votes.Private(file and owners / file, by, **columns)
    with pytest.raises(PateError) as refused:
        merged_votes.identify(owners / "0.npz", private, salt=owners / salt, out=owners / "x")
    assert said in str(refused.value) and not (owners / "x").exists()


def test_digests_name_nobody_without_the_salt(owners):
    """Equal ids of two salts have no digest in common, and a file is closed to other users of the machine."""
    first, second = (
        fingerprints.made(["ann", "bob"], by="record", salt=bytes([place]) * 32, votes="") for place in (1, 2)
    )
    assert fingerprints.overlaps([first, second]) == []
    assert (owners / "0.ids").stat().st_mode & 0o077 == 0 == (owners / "salt.txt").stat().st_mode & 0o077
    assert b"p00" not in (owners / "0.ids").read_bytes()
