"""Budgets of runs: fixed in advance, never overspent, and continued under what is left."""

import json
import shutil
from dataclasses import replace

import honest_runs
import numpy as np
import pytest

from pate_jax import accounting, voting
from pate_jax.accounting import curves
from pate_jax.accounting.bounds.worst_case import index_curve
from pate_jax.audit import verify
from pate_jax.cli import main
from pate_jax.errors import PateError
from pate_jax.mechanisms import ConfidentDiscreteGaussian, DiscreteGaussianMax, GNMax, to_dict
from pate_jax.runs import batches, budget, chain, ledger, stages
from pate_jax.runs.answers import load_answers, load_asked
from pate_jax.runs.directory import RunDirectory
from pate_jax.system import storage

MECHANISM = DiscreteGaussianMax(60.0)
NAMED = ["discrete-gaussian", "--sigma", "60"]


def votes(rows, shift=0, ids=True, split=50):
    """Three classes, a hundred teachers."""
    column = np.arange(rows) % 3
    histograms = np.full((rows, 3), (100 - split) // 2)
    histograms[np.arange(rows), column] = split
    histograms[:, 2] += 100 - histograms.sum(1)
    names = np.array([f"input {shift + row}" for row in range(rows)])
    return voting.Votes(histograms.astype(np.int32), ids=names if ids else None)


def begin(folder, rows=200, epsilon=1.0, mechanism=MECHANISM, name="run", delta=None, **given):
    run = RunDirectory(folder / name)
    with run.writing():
        batches.adopt(run, votes(rows, **given), seed=3, relation="record")
        batches.answer(run, mechanism, epsilon, delta)
    return run


def go_on(run, rows, shift, mechanism=MECHANISM, **given):
    with run.writing():
        batches.adopt(run, votes(rows, shift, **given), seed=3, more=True)
        return batches.answer(run, mechanism)


def asked(run):
    return [line.event.asked for line in ledger.lines(run.ledger)]


def test_only_what_fits_is_asked_and_it_is_said_before(tmp_path, capsys):
    run = begin(tmp_path)
    (count,) = asked(run)
    assert 0 < count < 200
    assert f"of the 200 wanted, the first {count} are asked" in capsys.readouterr().err
    assert len(load_answers(run).labels) == len(load_asked(run).votes) == count
    order = budget.fixed(run).order
    curve = index_curve(MECHANISM, 100, 3, [order])
    within, beyond = (curves.epsilon([order], curve * many, 1e-5).epsilon for many in (count, count + 1))
    assert within <= 1.0 < beyond


def test_how_many_are_asked_does_not_depend_on_the_votes(tmp_path):
    runs = [begin(tmp_path, rows=400, name=f"run {split}", split=split) for split in (34, 60, 96)]
    assert len({tuple(asked(run)) for run in runs}) == 1


def test_the_budget_is_the_figure(tmp_path):
    run = begin(tmp_path, rows=30)
    with run.writing():
        statement = stages.account(run)
    assert statement.headline.epsilon == 1.0 and statement.headline.status == "publishable"
    assert "budget" in statement.charged and statement.asked == 30
    published = storage.read_json(run.public_statement, "statement")
    assert published["figures"]["data_independent"]["epsilon"] == 1.0
    assert statement.figures["exact"].note.startswith("bound for this data set")


def test_without_a_budget_the_figure_is_that_of_the_list(tmp_path):
    run = begin(tmp_path, rows=30, epsilon=None)
    with run.writing():
        statement = stages.account(run, 1e-5)
    assert statement.headline.epsilon != 1.0 and asked(run) == [30]
    with pytest.raises(PateError, match=r"made without a budget.*--budget-epsilon"):
        go_on(run, 5, 30)
    with pytest.raises(PateError, match="fixed before the first answer"), run.writing():
        batches.answer(run, MECHANISM, 1.0)


def test_a_run_goes_on_until_its_budget_is_spent(tmp_path):
    run = begin(tmp_path, rows=30)
    (most,) = asked(begin(tmp_path, name="whole"))
    go_on(run, 20, 30)
    go_on(run, 150, 50)
    assert asked(run) == [30, 20, most - 50]
    with pytest.raises(PateError, match=r"is spent.*nothing was asked"):
        go_on(run, 10, 200)
    assert len(asked(run)) == 3
    with run.writing():
        statement = stages.account(run)
    assert statement.asked == most and statement.headline.epsilon == 1.0
    assert statement.figures["exact"].note.startswith("cost along this history")
    total = budget.spent(run)
    curve = index_curve(MECHANISM, 100, 3, [budget.fixed(run).order])[0]
    assert most * curve <= total.rdp <= budget.fixed(run).rdp


def test_rows_that_name_one_input_and_differ_are_pointed_at(tmp_path, capsys):
    """Only the first is answered, so the array of ids is hardly what was meant."""
    given = voting.Votes(np.array([[60, 40, 0], [60, 40, 0], [40, 60, 0]]), ids=np.zeros(3, np.int64))
    run = RunDirectory(tmp_path / "run")
    with run.writing():
        batches.adopt(run, given, seed=3, relation="record")
    said = " ".join(capsys.readouterr().err.split())
    assert "rows 0 and 2 name the same input but hold different votes (1 such rows in all)" in said


def test_an_input_that_was_answered_is_free_and_gets_the_same_answer(tmp_path, capsys):
    run = begin(tmp_path, rows=30)
    first = storage.read_arrays(run.answers, "answers")
    go_on(run, 12, 24)  # six old, six new
    assert "6 of 12 rows repeat an input" in capsys.readouterr().err
    assert asked(run) == [30, 6]
    second = storage.read_arrays(run.answers_of(2), "answers")
    assert len(second["labels"]) == 6 and len(second["row_labels"]) == 12
    np.testing.assert_array_equal(second["row_labels"][:6], first["labels"][24:])
    np.testing.assert_array_equal(second["row_labels"][6:], second["labels"])
    go_on(run, 20, 0, split=60)  # nothing new, whatever the votes say now
    assert asked(run) == [30, 6, 0]
    np.testing.assert_array_equal(
        storage.read_arrays(run.answers_of(3), "answers")["row_labels"], first["labels"][:20]
    )


def test_the_same_list_again_is_the_same_batch(tmp_path):
    run = begin(tmp_path, rows=30)
    go_on(run, 12, 30)
    before = [run.answers_of(batch).read_bytes() for batch in (1, 2)]
    go_on(run, 12, 30)
    go_on(run, 30, 0)
    assert asked(run) == [30, 12]
    assert [run.answers_of(batch).read_bytes() for batch in (1, 2)] == before


def test_other_votes_on_the_same_inputs_are_refused(tmp_path):
    run = begin(tmp_path, rows=30)
    with pytest.raises(PateError, match="digest"):
        go_on(run, 30, 0, split=60)


def test_an_input_that_is_handed_in_twice_is_asked_once(tmp_path):
    once = votes(4)
    run = RunDirectory(tmp_path / "run")
    with run.writing():
        batches.adopt(
            run,
            once._replace(votes=once.votes[[0, 1, 0]], ids=once.ids[[0, 1, 0]]),
            seed=3,
            relation="record",
        )
        batches.answer(run, MECHANISM, 1.0)
    found = storage.read_arrays(run.answers, "answers")
    assert len(found["labels"]) == 2 and found["row_labels"][0] == found["row_labels"][2]


def test_a_further_list_must_name_its_inputs(tmp_path):
    run = begin(tmp_path, rows=30)
    with pytest.raises(PateError, match="must name its inputs"):
        go_on(run, 5, 30, ids=False)
    with pytest.raises(PateError, match="add --more"), run.writing():
        batches.adopt(run, votes(5, 30), seed=3, relation="record")


def test_another_ensemble_is_refused(tmp_path):
    run = begin(tmp_path, rows=30)
    other = votes(5, 30)
    with pytest.raises(PateError, match="of 200 teachers on 3 classes"), run.writing():
        batches.adopt(run, other._replace(votes=other.votes * 2), seed=3, more=True)


def test_equal_votes_in_two_batches_share_no_noise(tmp_path):
    """Else equal answers would show that the votes are equal, and different ones that they are not."""
    run = begin(tmp_path, rows=12, epsilon=4.0, split=34)
    go_on(run, 12, 12, split=34)
    one, two = ledger.read(run.ledger)
    assert one.exact == two.exact and one.noise != two.noise and one.values != two.values


def test_another_mechanism_on_a_copy_of_the_run_shares_no_noise(tmp_path):
    run = begin(tmp_path, rows=12)
    (line,) = ledger.read(run.ledger)
    names = [
        line._replace(event=replace(line.event, mechanism=one)).stream
        for one in (MECHANISM, DiscreteGaussianMax(30.0))
    ]
    assert run.secret.commitment(names[0]) != run.secret.commitment(names[1])
    assert line.noise == run.secret.commitment(names[0])


@pytest.mark.parametrize("again", [0.5, 2.0])
def test_a_budget_cannot_be_changed(tmp_path, again):
    run = begin(tmp_path, rows=12)
    with pytest.raises(PateError, match=rf"epsilon=1\.0 and delta=1e-05, not {again}"), run.writing():
        batches.answer(run, MECHANISM, again)
    with pytest.raises(PateError, match="delta=1e-06"), run.writing():
        stages.account(run, 1e-6)
    with pytest.raises(PateError, match=r"sigma=60\.0, not 30\.0"), run.writing():
        batches.answer(run, DiscreteGaussianMax(30.0))


def test_a_lost_or_older_ledger_is_never_answered_around(tmp_path):
    run = begin(tmp_path, rows=12)
    kept = [path.read_bytes() for path in (run.ledger, chain.head_path(run.ledger))]
    go_on(run, 12, 12)
    restored(run, kept)
    with (
        pytest.raises(PateError, match=r"answers-0002\.npz holds answers that .* does not show"),
        run.writing(),
    ):
        batches.answer(run, MECHANISM)
    run.ledger.unlink()
    with pytest.raises(PateError, match="end is missing"), run.writing():
        batches.answer(run, MECHANISM)


def restored(run, kept):
    for path, content in zip((run.ledger, chain.head_path(run.ledger)), kept, strict=True):
        path.write_bytes(content)


def test_an_older_ledger_alone_brings_the_same_answers_and_no_others(tmp_path):
    """Even without the answers that would betray it: the noise follows from run, batch, inputs and votes."""
    run = begin(tmp_path, rows=12)
    kept = [path.read_bytes() for path in (run.ledger, chain.head_path(run.ledger))]
    go_on(run, 12, 12)
    whole = run.ledger.read_bytes(), run.answers_of(2).read_bytes()
    restored(run, kept)
    with pytest.raises(PateError, match=r"answers-0002\.npz holds answers"), run.writing():
        stages.account(run)
    run.answers_of(2).unlink()
    with run.writing():
        batches.answer(run, MECHANISM)
    assert (run.ledger.read_bytes(), run.answers_of(2).read_bytes()) == whole


def test_copies_of_a_run_that_go_on_differently_share_no_noise(tmp_path):
    """Else equal answers would show that the votes on two inputs are equal."""
    runs = [begin(tmp_path, rows=12)]
    runs += [RunDirectory(shutil.copytree(runs[0].root, tmp_path / f"copy {number}")) for number in (1, 2)]
    for run, shift in zip(runs, (12, 24, 12), strict=True):
        go_on(run, 12, shift)
    one, other, same = (ledger.read(run.ledger)[1] for run in runs)
    assert one.exact == other.exact and one.noise != other.noise
    assert one.noise == same.noise and one.values == same.values


@pytest.mark.parametrize("kind", ["ids", "digests"])
def test_copies_made_before_the_first_vote_share_no_noise(tmp_path, kind):
    """Two hundred queries that a coin refuses, on equal votes: the same coins for the same list only."""
    mechanism, refused = ConfidentDiscreteGaussian(50.0, 30.0, 10.0), []
    first = RunDirectory(tmp_path / "run 0")
    first.secret.draw(3)
    copies = [RunDirectory(shutil.copytree(first.root, tmp_path / f"run {number}")) for number in (1, 2)]
    for run, shift in zip((first, *copies), (0, 200, 0), strict=True):
        asked = votes(200, shift)
        named = asked if kind == "ids" else asked._replace(ids=None, digests=asked.ids)
        with run.writing():
            batches.adopt(run, named, seed=3, relation="record")
            refused.append(~np.asarray(batches.answer(run, mechanism).answered))
    one, other, same = refused
    assert 40 < one.sum() < 160 and 50 < (one != other).sum() < 150  # 100 differ on average, within 7 sigma
    np.testing.assert_array_equal(one, same)


EDITS = {
    "raised": {"budget": {"epsilon": 8.0}},
    "lowered": {"budget": {"epsilon": 0.1}},
    "more at its order": {"budget": {"rdp": 50.0}},
    "a looser delta": {"budget": {"delta": 1e-3}},
}


@pytest.mark.parametrize("edit", [*EDITS, "removed", "all settings lost"])
def test_a_budget_that_was_edited_later_is_refused_everywhere(tmp_path, edit):
    """By whoever would spend under it, by whoever would publish it, and by `pate budget`."""
    run = begin(tmp_path, rows=12)
    recorded = run.record.stages()
    if edit in EDITS:
        budget_now = {**recorded["budget"], **EDITS[edit]["budget"]}
        storage.write_json(run.settings, "settings", {**recorded, "budget": budget_now})
    else:
        kept = {} if edit == "all settings lost" else {k: v for k, v in recorded.items() if k != "budget"}
        storage.write_json(run.settings, "settings", kept)
    before = run.ledger.read_bytes()
    asking = (
        lambda: batches.adopt(run, votes(12, 12), seed=3, more=True),
        lambda: batches.answer(run, MECHANISM),
        lambda: stages.account(run),
        lambda: budget.spent(run),
        lambda: budget.summary(run),
    )
    for ask in asking[edit == "all settings lost" :]:
        with pytest.raises(PateError, match=r"made without a budget|settings.json"), run.writing():
            ask()
    assert run.ledger.read_bytes() == before and not run.public_statement.exists()


def test_a_mechanism_that_was_edited_later_is_refused(tmp_path):
    run, weaker = begin(tmp_path, rows=12), DiscreteGaussianMax(30.0)
    storage.write_json(run.settings, "settings", {**run.record.stages(), "mechanism": to_dict(weaker)})
    for ask in (lambda: batches.answer(run, weaker), lambda: stages.account(run)):
        with pytest.raises(PateError, match=r"was answered by .*60\.0.* now says .*30\.0"), run.writing():
            ask()


def test_answers_that_the_ledger_does_not_show_are_not_used(tmp_path):
    run = begin(tmp_path, rows=12)
    issued = run.answers.read_bytes()
    held = storage.read_arrays(run.answers, "answers")
    for changed in ({"labels": (held["labels"] + 1) % 3}, {"labels": held["labels"][:6]}, {"answered": None}):
        arrays = {name: value for name, value in {**held, **changed}.items() if value is not None}
        storage.write_arrays(run.answers, "answers", arrays)
        with pytest.raises(PateError, match="differs from the ledger"), run.writing():
            stages.account(run)
    with run.writing():
        batches.answer(run, MECHANISM)
    assert run.answers.read_bytes() == issued


def test_lost_answers_are_issued_again_before_more_is_asked(tmp_path):
    """Else inputs that were answered would pass for new ones."""
    run = begin(tmp_path, rows=12)
    issued = run.answers.read_bytes()
    run.answers.unlink()
    with pytest.raises(PateError, match=r"not been answered yet: run `pate aggregate"):
        go_on(run, 12, 6)
    with run.writing():
        batches.answer(run, MECHANISM)
    assert run.answers.read_bytes() == issued
    go_on(run, 12, 6)
    assert asked(run) == [12, 6]


def test_a_budget_that_affords_nothing_leaves_the_run_as_it_was(tmp_path):
    run = RunDirectory(tmp_path / "run")
    with run.writing():
        batches.adopt(run, votes(12), seed=3, relation="record")
        with pytest.raises(PateError, match="does not afford one answer"):
            batches.answer(run, DiscreteGaussianMax(1.0), 0.1)
        batches.answer(run, MECHANISM, 0.5)
    assert budget.fixed(run).epsilon == 0.5 and not list(run.private.glob("answers-*"))


def test_a_delta_without_a_budget_is_refused(tmp_path):
    with pytest.raises(PateError, match=r"delta=1e-06 is the delta of a budget.*--budget-epsilon"):
        begin(tmp_path, rows=12, epsilon=None, delta=1e-6)


def test_a_lost_secret_is_not_drawn_anew(tmp_path):
    run = begin(tmp_path, rows=12)
    run.keys.unlink()
    with pytest.raises(PateError, match=r"keys\.json is missing"):
        run.secret.draw(3)


def test_a_release_whose_private_part_is_lost_is_not_made_anew_with_other_noise(tmp_path):
    """Whoever has both would hold two answers to each query, and the ledger would show one."""
    for name, run in (("teachers", honest_runs.whole()), ("crowd", honest_runs.crowd("sums"))):
        shutil.copytree(run.root / "release", tmp_path / name / "release")
        copy = RunDirectory(tmp_path / name)
        with pytest.raises(PateError, match=r"is of a run whose secret.*does not show"):
            copy.secret.draw(None)
        assert not copy.keys.exists()


def test_votes_made_elsewhere_do_not_enter_a_run_with_teachers(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.record.agree("data", {"dataset": "strokes"})
    with pytest.raises(PateError, match=r"has its own teachers.*ask them with"):
        batches.adopt(run, votes(3), seed=None)
    with pytest.raises(PateError, match=r"has its own teachers.*leave out --relation"):
        batches.adopt(run, votes(3), seed=None, relation="record")


@pytest.mark.parametrize("relation", accounting.RELATIONS)
def test_votes_from_elsewhere_are_covered_as_declared(tmp_path, relation):
    run = RunDirectory(tmp_path / "run")
    with run.writing():
        with pytest.raises(PateError, match=r"relation is not declared.*--relation record, user"):
            batches.adopt(run, votes(12), seed=3)
        assert not run.settings.exists() and not run.keys.exists()
        batches.adopt(run, votes(12), seed=3, relation=relation)
        batches.adopt(run, votes(12), seed=3)  # the same list again, and its word stands
        with pytest.raises(PateError, match=f"relation='{relation}', not"):
            batches.adopt(run, votes(12), seed=3, relation="user" if relation == "record" else "record")
        batches.answer(run, MECHANISM)
        stages.account(run)
    published = storage.read_json(run.public_statement, "statement")
    words = f"{accounting.RELATIONS[relation]}, as declared by the makers of the votes"
    assert published["relation_in_words"] == words and words in published["model_card_line"]
    again = accounting.Statement.from_dict(published)
    assert (
        words in again.text()
        and words in again.html()
        and again.publishable()
        == {name: value for name, value in published.items() if name not in ("artefact", "schema")}
    )


def test_a_run_that_lost_its_declaration_is_opened_and_may_be_declared(tmp_path, capsys):
    run = begin(tmp_path, rows=12, delta=1e-5)
    kept = {name: value for name, value in run.record.stages().items() if name != "relation"}
    storage.write_json(run.settings, "settings", kept)
    assert len(load_answers(run).labels) == 12 and budget.summary(run)["spent"]["queries"] == 12
    with pytest.raises(PateError, match=r"nobody declared whom they cover.*--relation"):
        stages.account(run)
    main(["aggregate", str(run.root), "--relation", "party"])
    capsys.readouterr()
    main(["account", str(run.root)])
    assert "one teacher of a party" in capsys.readouterr().out and not verify.of_run(run).of("failed")


def test_what_is_proved_of_votes_alone_is_about_one_voter():
    found = accounting.statement(MECHANISM, votes(3).votes, None, 1e-5, private=True)
    assert found.relation == "party" and found.covers.endswith("as declared by the makers of the votes")
    with pytest.raises(PateError, match="relation='house'"):
        accounting.statement(MECHANISM, votes(3).votes, None, 1e-5, relation="house", private=True)


def test_the_command_shows_what_is_spent_and_left(tmp_path, capsys):
    run = begin(tmp_path, rows=30)
    capsys.readouterr()
    main(["budget", str(run.root), "--json"])
    found = json.loads(capsys.readouterr().out)
    most = found["spent"]["queries"] + found["left"]["queries"]
    assert asked(begin(tmp_path, name="whole")) == [most]
    assert found["budget"]["epsilon"] == 1.0 and found["spent"]["share"] + found["left"]["share"] == 1.0
    capsys.readouterr()
    main(["budget", str(run.root)])
    out = capsys.readouterr().out
    assert "Budget: epsilon 1 at delta 1e-05" in out and f"{found['left']['queries']} more queries" in out


def test_the_command_shows_a_run_without_a_budget(tmp_path, capsys):
    run = begin(tmp_path, rows=30, epsilon=None)
    capsys.readouterr()
    main(["budget", str(run.root)])
    worst, _ = accounting.worst_case(MECHANISM, [100] * 30, 1e-5, classes=3)
    assert f"30 queries, epsilon {worst.epsilon:.4f}" in capsys.readouterr().out


def test_the_commands_go_on_with_a_run(tmp_path, capsys):
    for name, part in (("a", votes(30)), ("b", votes(20, 25))):
        voting.save_votes(tmp_path / f"{name}.npz", part)
    out = ["--out", str(tmp_path / "run")]
    main(
        ["aggregate", str(tmp_path / "a.npz"), *out, "--relation", "record", "--budget-epsilon", "1", *NAMED]
    )
    capsys.readouterr()
    main(["aggregate", str(tmp_path / "b.npz"), *out, "--more", "--json"])
    assert json.loads(capsys.readouterr().out)["queries"] == 45
    main(["account", str(tmp_path / "run")])
    assert "(1.0000, 1e-05)-differentially private" in capsys.readouterr().out


def test_continuous_noise_has_a_filter_too(tmp_path):
    size = {"teachers": 100, "classes": 3}
    rooms = []
    for mechanism in (GNMax(60.0), MECHANISM):
        run = RunDirectory(tmp_path / mechanism.noise.family)
        budget.settle(run, mechanism, **size, epsilon=1.0)
        rooms.append(budget.fit(run, budget.NOTHING, wanted=200, **size))
    assert rooms[0] == rooms[1] < 200


@pytest.mark.long
def test_a_hundred_thousand_queries_under_one_budget(tmp_path):
    """Ten lists, each twice as if a crash had come, until the budget ends in the eleventh."""
    mechanism = DiscreteGaussianMax(67.2)
    run = begin(tmp_path, rows=10_000, epsilon=40.0, mechanism=mechanism)
    for batch in range(1, 11):
        for _ in range(2):
            go_on(run, 10_000, 10_000 * batch, mechanism)
    (*whole, last) = asked(run)
    assert whole == [10_000] * 10 and 0 < last < 10_000
    found = budget.summary(run)
    assert found["left"]["queries"] == 0 and 0.999 < found["spent"]["share"] <= 1
    assert len(load_answers(run).labels) == 100_000 + last
    assert run.ledger.stat().st_size < 2.5 * (100_000 + last)
