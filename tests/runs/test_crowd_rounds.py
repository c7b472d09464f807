"""Crowds that vote in several rounds: one voter moves tables or scores, and no more than was planned."""

import json
import math
import shutil
from dataclasses import replace
from types import SimpleNamespace

import commands
import honest_runs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate_jax import accounting, crowd
from pate_jax.accounting.exact import counts
from pate_jax.accounting.exact.counts import Unmade
from pate_jax.audit import crowds, verify
from pate_jax.data import load, partition, relation
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, HeadCount, NeighbourCounts, Score
from pate_jax.runs import chain, ledger, pipeline, register
from pate_jax.runs.crowds import choice, comparison, public_side, release, rounds, students
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.crowds import stages as crowd_stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import CrowdChoice, RunConfig
from pate_jax.student import Auto, Student, Supervised, spaces
from pate_jax.system import storage

KINDS = [("sums", "record"), ("neighbours", "user")]


def opened(run):
    """The crowd of a run, whose data is not opened again for each round."""
    return crowd_stages.crowd_inputs.opened(run)


@pytest.mark.parametrize(("voters", "by"), KINDS)
def test_a_run_in_two_rounds_stands_every_check(voters, by):
    run = honest_runs.in_rounds(voters, by)
    found = verify.of_run(run, deep=True)
    assert found.of("failed") == [] and found.of("unchecked") == []
    assert verify.of_release(run.release).of("failed") == []
    names = [line.release.name for line in ledger.releases(run.ledger)]
    assert names == ["headcount", voters, "score", voters]
    later = public_side.plan_of(public_side.read(run.public_side_of(2)), run.public_side_of(2))
    assert later.space.front.kind == "student"


@pytest.mark.parametrize(("voters", "by"), KINDS)
def test_both_rounds_together_cost_what_was_wished_and_equal_parts_of_it(voters, by):
    run = honest_runs.in_rounds(voters, by)
    statement = accounting.Statement.from_dict(storage.read_json(run.public_statement, "statement"))
    assert 7.999 < statement.headline.epsilon <= 8.0 and statement.unmade is None
    tables = [line.release for line in rounds.shown(run).tables]
    mus = [counts.gaussian_mu(one) for one in tables]
    assert mus[0] == pytest.approx(mus[1], rel=1e-9)
    assert math.hypot(*mus) <= counts.mu_for(8.0, 1e-5)
    assert statement.releases == tuple(line.release for line in ledger.releases(run.ledger))


def moves(release, voting, held_out, change):
    """By hand: how far one voter moves a release, squared."""
    if isinstance(release, HeadCount):
        return 0 if change == "changed" else 1
    if isinstance(release, Score):
        return 1 if held_out else 0
    if held_out:
        return 0
    whole = release.length**2 if voting == "sums" else release.votes
    return whole * ({"sums": 4, "neighbours": 2}[voting] if change == "changed" else 1)


@given(
    st.sampled_from(["sums", "neighbours"]),
    st.floats(0.02, 6.0),
    st.integers(1, 6),
    st.integers(1, 6),
)
def test_whatever_a_voter_does_the_plan_of_all_rounds_covers_it(voting, epsilon, planned, made):
    """Every kind of voter, by hand: Gaussian-DP of the squared moves, each over its own noise."""
    made, mu = min(made, planned), counts.mu_for(epsilon, 1e-5)
    share = mu / math.sqrt(planned)
    sigma = {"sums": max(1.0, 2 * 100 / share), "neighbours": max(1.0, math.sqrt(2 * 4) / share)}[voting]
    table = ClassSums(3, 4, 100, sigma * (1 + 1e-6))
    if voting == "neighbours":
        table = NeighbourCounts(9, 3, 4, sigma * (1 + 1e-6))
    scores = [counts.score_for(mu, voting, planned - 1)] * min(made, planned - 1) if planned > 1 else []
    released = [counts.headcount_for(mu, voting), *[table] * made, *scores]
    left = Unmade(planned - made, share) if planned > made else None
    figure = counts.worst(released, 1e-5, left)
    assert figure <= epsilon
    everything = [
        released[0],
        *[table] * planned,
        *[score for score in scores[:1] for _ in range(planned - 1)],
    ]
    for change in ("changed", "joined"):
        for held_out in (False, True):
            squared = sum(moves(one, voting, held_out, change) / one.sigma**2 for one in everything)
            assert squared <= mu**2 * (1 + 1e-9)
    switched = sum(
        (moves(one, voting, False, "joined") + (1 if isinstance(one, Score) else 0)) / one.sigma**2
        for one in everything[1:]
    )
    assert switched <= mu**2 * (1 + 1e-9)


def test_scores_are_charged_to_those_who_move_them():
    """A score whose noise is too small shows in the figure, as do tables; neither hides behind the other."""
    table, mu = ClassSums(classes=3, directions=4, length=100, sigma=2000.0), 0.1
    number = counts.headcount_for(mu, "sums")
    loud = counts.worst([number, table, Score(2.0)], 1e-5)
    assert loud == pytest.approx(counts.epsilon([number, Score(2.0)], 1e-5, change="joined"))
    assert loud > 3 * counts.worst([number, table, Score(20.0)], 1e-5)
    unmade = Unmade(2, 0.1)
    assert counts.worst([number, table], 1e-5, unmade) == pytest.approx(counts.epsilon([table] * 3, 1e-5))


def noise_of(run):
    return [line.noise for line in ledger.releases(run.ledger)]


def test_every_release_has_noise_of_its_own():
    run = honest_runs.in_rounds("sums")
    assert len(set(noise_of(run))) == 4
    first, second = rounds.shown(run).tables
    width = min(first.release.directions, second.release.directions)
    drawn = []
    for round, line in enumerate((first, second), 1):
        exact = release.load_table(run, round)
        noisy = ledger.unpack_table(line.values, line.release.shape)
        drawn.append((noisy - exact)[:, :width].ravel() / line.release.sigma)
    assert abs(np.corrcoef(drawn)[0, 1]) < 6 / math.sqrt(len(drawn[0]))
    assert not np.array_equal(np.sign(drawn[0]), np.sign(drawn[1]))


def other_voter(path, out, row, **columns):
    """The private records with another content in one row."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name].copy() for name in file.files}
    for name, value in columns.items():
        arrays[name][row] = value
    np.savez(out, **arrays)
    return out


def exact(run, folder, private):
    """Everything that a run counts on these records, with public sides and students as they are in a run."""
    shutil.copytree(run.root, folder)
    copy = RunDirectory(folder)
    crowd_ = opened(copy)
    crowd_ = replace(
        crowd_, inputs=replace(crowd_.inputs, choice=replace(crowd_.inputs.choice, private=private))
    )
    tables = [release.counted(crowd_.at(round)) for round in (1, 2)]
    return tables, int(students.counted(crowd_.at(2))[0, 0]), crowd_


@pytest.mark.parametrize("voters", ["sums", "neighbours"])
def test_a_changed_record_moves_tables_or_the_score_and_never_both(tmp_path, voters):
    run = honest_runs.in_rounds(voters)
    path = honest_runs.many().private
    before, score, crowd_ = exact(run, tmp_path / "before", path)
    held_out = crowd_.held_out
    assert 20 < held_out.sum() < 70 and crowd_.judging == held_out.sum()
    for name, row in (("votes", np.flatnonzero(~held_out)[3]), ("judges", np.flatnonzero(held_out)[3])):
        inputs, label = np.full(4, 9.0, np.float32), (crowd_.everybody.labels[row] + 1) % 3
        changed = other_voter(path, tmp_path / f"{name}.npz", row, inputs=inputs, labels=label)
        after, score_after, other = exact(run, tmp_path / name, changed)
        assert np.array_equal(other.held_out, held_out)
        for round in (0, 1):
            plan = crowd_.at(round + 1).plan
            moved = int(((after[round] - before[round]) ** 2).sum())
            assert (moved == 0) if name == "judges" else 0 < moved <= plan.release.squared_shift("changed")
        assert score_after == score if name == "votes" else abs(score_after - score) <= 1


def test_who_is_held_out_depends_on_the_own_name_alone(tmp_path):
    run, path = honest_runs.in_rounds("neighbours", "user"), honest_runs.many().private
    _, _, whole = exact(run, tmp_path / "whole", path)
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    kept = np.random.default_rng(0).permutation(len(arrays["ids"]))[:250]
    np.savez(tmp_path / "some.npz", **{name: array[kept] for name, array in arrays.items()})
    _, _, some = exact(run, tmp_path / "some", tmp_path / "some.npz")
    assert np.array_equal(some.held_out, whole.held_out[kept])
    users = arrays["users"]
    assert not set(users[whole.held_out]) & set(users[~whole.held_out])


def test_what_a_student_says_of_a_record_depends_on_that_record_alone():
    run, random = honest_runs.in_rounds("sums"), np.random.default_rng(1)
    student = Student.load(run.student_of(1))
    inputs = (random.normal(size=(611, 4)) * 3).astype(np.float32)
    together = spaces.labels(student, inputs)
    order = random.permutation(len(inputs))
    np.testing.assert_array_equal(spaces.labels(student, inputs[order]), together[order])
    alone = [int(spaces.labels(student, inputs[row : row + 1])[0]) for row in (0, 250, 499, 610)]
    assert alone == together[[0, 250, 499, 610]].tolist()
    assert (student(inputs).argmax(1) == together).mean() > 0.99
    assert len(set(together.tolist())) == 3


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_one_user_moves_a_score_by_one_at_most(records):
    """A user with whom half of its records agree counts once; whatever it holds instead moves it by one."""
    users, right, other = (np.array(column) for column in zip(*records, strict=True))
    people = crowd.Voters(right[:, None].astype(float), np.ones(len(users), np.int32), users)
    rule = lambda inputs: inputs[:, 0].astype(int)  # noqa: E731
    before = crowd.agreeing(people, rule)
    by_hand = [2 * right[users == user].sum() >= (users == user).sum() for user in set(users.tolist())]
    assert before == sum(by_hand)
    mine = users == users[0]
    changed = people._replace(inputs=np.where(mine, other, right)[:, None].astype(float))
    assert abs(crowd.agreeing(changed, rule) - before) <= 1
    assert before - 1 <= crowd.agreeing(people.take(~mine), rule) <= before


def stopped(folder, monkeypatch, voters="sums"):
    """A run of three rounds at most, which ends after the first, as if its score said so."""
    monkeypatch.setattr(rounds, "goes_on", lambda scores, noise, chance: False)
    pipeline.run(honest_runs.of_rounds(folder, voters, rounds=3))
    return RunDirectory(folder)


def test_rounds_that_are_not_made_stay_in_the_figure_and_are_shown_as_left(tmp_path, monkeypatch, capsys):
    run = stopped(tmp_path / "run", monkeypatch)
    found = verify.of_run(run, deep=True)
    assert found.of("failed") == [] and found.of("unchecked") == []
    names = [line.release.name for line in ledger.releases(run.ledger)]
    assert names == ["headcount", "sums", "score"] and not run.public_side_of(2).exists()
    statement = accounting.Statement.from_dict(storage.read_json(run.public_statement, "statement"))
    assert statement.unmade.rounds == 2 and 7.999 < statement.headline.epsilon <= 8.0
    assert "2 more rounds for which the budget had room" in statement.charged
    assert commands.call("budget", run.root) == 0
    assert "Left: 67% of the squared mu of all tables" in capsys.readouterr().out
    page = run.public_report.read_text()
    assert "They voted in 1 of at most 3 rounds" in page and "was not spent" in page


def test_a_round_beyond_the_score_that_ended_them_is_found(monkeypatch):
    run = honest_runs.in_rounds("sums")
    monkeypatch.setattr(rounds, "goes_on", lambda scores, noise, chance: False)
    assert any("round 2 was made, and the score before it" in one for one in verify.of_run(run).of("failed"))


@pytest.mark.parametrize("kill", [*range(15, 26)])
def test_a_run_that_is_stopped_between_its_rounds_goes_on_with_the_same_noise(tmp_path, monkeypatch, kill):
    honest = honest_runs.in_rounds("sums", "record", 5)
    wanted = honest_runs.of_rounds(tmp_path, "sums", seed=5)
    run = RunDirectory(tmp_path)

    def released():
        with run.writing():
            config = wanted.student
            release.release(crowd_stages.begin(run, wanted.data, wanted.crowd, config))
            crowd_stages.account(run, 1e-5)

    with monkeypatch.context() as patch:
        written = honest_runs.stop_at_write(patch, kill)
        try:
            released()
        except KeyboardInterrupt:
            with pytest.raises(PateError):
                crowd_stages.account(run, 1e-5)  # nothing is stated of rounds that are not finished
    assert written[0] >= kill
    released()
    assert noise_of(run) == noise_of(honest)
    for mine, theirs in zip(ledger.releases(run.ledger), ledger.releases(honest.ledger), strict=True):
        assert mine.values == theirs.values


def test_a_run_of_one_round_has_the_layout_and_settings_that_it_had_before():
    run = honest_runs.crowd("sums")
    assert "rounds" not in run.record.stages() and "rounds" not in run.record.stages()["crowd"]
    assert "round" not in public_side.read(run.public_side)
    assert "held_out" not in storage.read_json(run.certificate, "certificate")
    results = storage.read_json(run.results, "results")
    assert "rounds" not in results and "scores" not in results
    assert len(list(ledger.releases(run.ledger))) == 2


def test_other_rounds_than_those_of_the_run_are_refused(tmp_path):
    shutil.copytree(honest_runs.crowd("sums").root, tmp_path / "run")
    wanted = RunConfig(
        honest_runs.table(),
        epsilon=4.0,
        voters="sums",
        rounds=2,
        student=honest_runs.STUDENT,
        out=tmp_path / "run",
    )
    with pytest.raises(PateError, match="rounds=None, not 2"):
        pipeline.run(wanted)


REFUSED = [
    ({"voters": "teachers", "rounds": 2}, "--rounds 2 is for a crowd"),
    ({"voters": "sums", "rounds": 0}, "rounds=0 must be a whole number"),
]


@pytest.mark.parametrize(("flags", "sentence"), REFUSED)
def test_rounds_that_make_no_sense_are_refused(flags, sentence):
    with pytest.raises(PateError, match=sentence):
        RunConfig(**flags)


def test_too_few_voters_to_hold_some_out_are_refused_before_anything_is_recorded(tmp_path):
    folder = tmp_path / "few"
    honest_runs._write_table(folder, private=8)
    data = replace(honest_runs.many(), private=folder / "private.npz")
    wanted = replace(honest_runs.of_rounds(tmp_path / "run", "sums"), data=data)
    with pytest.raises(PateError, match="holds out one voter in 10, and there are fewer"):
        pipeline.run(wanted)


def without_the_first(by):
    """Those whom a hash of row numbers holds out, before and after the first record, or user, is removed."""
    names = np.array([f"user-{row // 2}" if by == "user" else str(row) for row in range(400)])
    contents = np.arange(400)
    key = partition.seeded_key(3)
    gone = 2 if by == "user" else 1
    before = set(contents[partition.assign(names, 10, key=key) == 0].tolist())
    after = set(contents[gone:][partition.assign(names[: 400 - gone], 10, key=key) == 0].tolist())
    return before, after


@pytest.mark.parametrize("by", ["record", "user"])
def test_nobody_is_held_out_by_a_row_number(tmp_path, by):
    """One who is removed would move most of the others between tables and judges, which no figure covers."""
    before, after = without_the_first(by)
    assert len(before ^ after) > 40
    with np.load(honest_runs.many().private, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    rows = range(len(arrays["ids"]))
    named = (
        {"users": [f"user-{row // 2}" for row in rows]}
        if by == "user"
        else {"ids": [str(row) for row in rows]}
    )
    np.savez(tmp_path / "private.npz", **arrays | {name: np.array(column) for name, column in named.items()})
    data = replace(honest_runs.many(), private=tmp_path / "private.npz")
    wanted = replace(honest_runs.of_rounds(tmp_path / "run", "sums", by), data=data)
    with pytest.raises(PateError, match="are row numbers"):
        crowd_stages.begin(RunDirectory(tmp_path / "run"), data, wanted.crowd, wanted.student)
    assert not (tmp_path / "run" / "private" / "settings.json").exists()
    stable = replace(data, ids_are_stable=True)
    opened = crowd_inputs.made(RunDirectory(tmp_path / "run"), stable, wanted.crowd)
    assert not opened.renumbers


def test_a_run_that_holds_out_row_numbers_is_found_out(monkeypatch):
    run = honest_runs.in_rounds("sums")
    crowd = crowd_inputs.opened(run)
    faults = lambda: [one.text for one in crowds.voters(run, crowd) if one.outcome == "failed"]  # noqa: E731
    assert faults() == []
    monkeypatch.setattr(crowd_inputs.relation, "renumbers", lambda dataset, by: True)
    assert any("held out by row numbers" in one for one in faults())


def test_what_ids_look_like_decides_nothing_that_a_release_shows():
    """Whether ids count up changes with one record, so only a declaration lets anybody be held out."""
    shown = {}
    for left in (60, 17):
        names = np.array([f"{row}" for row in range(60) if row != left])
        drawn = load("strokes", size=len(names), public_size=2, test_size=2)
        private = drawn.private._replace(ids=names)
        given = replace(drawn, private=private, ids_are="given", description="")
        assert relation.are_rows(given) == (left == 60)
        for stable in (True, False):
            data = relation.declared(given, stable)
            made = crowd_inputs.Crowd(SimpleNamespace(dataset=data), CrowdChoice("sums"))
            shown[left, stable] = made.declared, relation.without_warning(data.description)
    assert shown[60, True] == shown[17, True] == (True, relation.DECLARED)
    assert shown[60, False] == shown[17, False] == (False, "")


@pytest.mark.parametrize("wanted", ["sums", "in rounds"])
def test_a_run_does_not_go_on_with_other_private_records(tmp_path, wanted):
    """Where ids were exchanged, those who judge would have voted in the table already."""
    shutil.copytree(honest_runs.many().private.parent, tmp_path / "data")
    names = ("private", "public", "test")
    data = replace(honest_runs.many(), **{name: tmp_path / "data" / f"{name}.npz" for name in names})
    run, choice = RunDirectory(tmp_path / "run"), CrowdChoice("sums", rounds=1 if wanted == "sums" else 2)
    with run.writing():
        crowd_stages.begin(run, data, choice)
        crowd_stages.begin(run, data, choice)
        with np.load(data.private, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        np.savez(data.private, **{**arrays, "ids": arrays["ids"][::-1]})
        with pytest.raises(PateError, match=r"private records were changed since .* was begun: restore them"):
            crowd_stages.begin(run, data, choice)
        np.savez(data.private, **arrays)
        crowd_stages.begin(run, data, choice)


def test_more_rounds_and_comparisons_need_a_declaration(monkeypatch):
    run = honest_runs.in_rounds("sums")
    crowd = crowd_inputs.opened(run)
    monkeypatch.setattr(choice, "_expected", lambda crowd, mu, labels, wanted: wanted)
    monkeypatch.setattr(choice.forecast, "_ENOUGH", 1)
    for ids_are, wanted in (("stable", {1, 2}), ("given", {1}), ("rows", {1})):
        vars(crowd.inputs)["dataset"] = replace(crowd.dataset, ids_are=ids_are)
        assert {one.rounds for one in choice._rehearsed(crowd, [])} == wanted


def test_students_are_not_compared_where_ids_are_not_declared():
    images, once = SimpleNamespace(kind="image", synthetic=False), SimpleNamespace(rounds=1)
    crowd = SimpleNamespace(dataset=images, choice=once, kind="patches", declared=True)
    assert comparison.rivals(Auto(), crowd)
    crowd.declared = False
    assert comparison.rivals(Auto(), crowd) == []


def test_a_register_shows_all_rounds_and_the_release_tells_of_them(tmp_path):
    file = tmp_path / "register.jsonl"
    register.begin(file)
    wanted = replace(honest_runs.of_rounds(tmp_path / "run", "sums"), register=file)
    pipeline.run(wanted)
    run = RunDirectory(tmp_path / "run")
    assert "register: the register shows" in " ".join(verify.of_run(run).of("passed"))
    told = storage.read_json(run.results, "results")
    assert told["rounds"] == 2 and len(told["scores"]) == 1 and told["space"]["kind"] == "student"
    assert "They voted in 2 of at most 2 rounds" in run.public_report.read_text()
    assert json.loads(run.statement.read_text()) == json.loads(run.public_statement.read_text())


def test_students_between_rounds_are_nets_with_a_last_layer():
    chosen = students.between(
        Supervised(net="table", steps=3), RunConfig(voters="sums", rounds=2).crowd, pool=9, image=False
    )
    assert chosen.net == "table" and chosen.steps == 3


def test_lines_that_do_not_follow_each_other_are_refused(tmp_path):
    run = RunDirectory(tmp_path)
    with chain.Writer(run.ledger) as book:
        for line in list(ledger.releases(honest_runs.in_rounds("sums").ledger))[:2][::-1]:
            ledger.append_crowd(book, line)
    with pytest.raises(PateError, match="does not come there"):
        rounds.shown(run)
