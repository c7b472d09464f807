"""Budgets of runs: fixed in advance, never overspent, and continued under what is left."""

import json

import numpy as np
import pytest

from pate_jax import accounting, artefact, budget, ledger, stages, voting
from pate_jax.accounting import curves
from pate_jax.cli import main
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax, GNMax
from pate_jax.rundir import RunDirectory

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


def begin(folder, rows=200, epsilon=1.0, mechanism=MECHANISM, name="run", **given):
    run = RunDirectory(folder / name)
    with run.writing():
        stages.adopt(run, votes(rows, **given), seed=3)
        stages.answer(run, mechanism, epsilon)
    return run


def go_on(run, rows, shift, **given):
    with run.writing():
        stages.adopt(run, votes(rows, shift, **given), seed=3, more=True)
        return stages.answer(run, MECHANISM)


def asked(run):
    return [entry["asked"] for entry in ledger.entries(run.ledger)]


def test_only_what_fits_is_asked_and_it_is_said_before(tmp_path, capsys):
    run = begin(tmp_path)
    (count,) = asked(run)
    assert 0 < count < 200
    assert f"of the 200 wanted, the first {count} are asked" in capsys.readouterr().err
    assert len(stages.load_answers(run).labels) == len(stages.load_asked(run).votes) == count
    order = budget.fixed(run).order
    curve = curves.data_independent(MECHANISM, 100, [order])[0]
    within, beyond = (curves.epsilon([order], curve * many, 1e-5).epsilon for many in (count, count + 1))
    assert within <= 1.0 < beyond


def test_how_many_are_asked_does_not_depend_on_the_votes(tmp_path):
    runs = [begin(tmp_path, name=f"run {split}", split=split) for split in (34, 60, 96)]
    assert len({tuple(asked(run)) for run in runs}) == 1


def test_the_budget_is_the_figure(tmp_path):
    run = begin(tmp_path, rows=30)
    with run.writing():
        statement = stages.account(run)
    assert statement.headline.epsilon == 1.0 and statement.headline.status == "publishable"
    assert "budget" in statement.charged and statement.asked == 30
    published = artefact.read_json(run.public_statement, "statement")
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
        stages.answer(run, MECHANISM, 1.0)


def test_a_run_goes_on_until_its_budget_is_spent(tmp_path):
    run = begin(tmp_path, rows=30)
    (most,) = asked(begin(tmp_path, name="whole"))
    go_on(run, 20, 30)
    go_on(run, 100, 50)
    assert asked(run) == [30, 20, most - 50]
    with pytest.raises(PateError, match=r"is spent.*nothing was asked"):
        go_on(run, 10, 150)
    assert len(asked(run)) == 3
    with run.writing():
        statement = stages.account(run)
    assert statement.asked == most and statement.headline.epsilon == 1.0
    assert statement.figures["exact"].note.startswith("cost along this history")
    total = budget.spent(run)
    curve = curves.data_independent(MECHANISM, 100, [budget.fixed(run).order])[0, 0]
    assert most * curve <= total.rdp <= budget.fixed(run).rdp


def test_an_input_that_was_answered_is_free_and_gets_the_same_answer(tmp_path, capsys):
    run = begin(tmp_path, rows=30)
    first = artefact.read_arrays(run.answers, "answers")
    go_on(run, 12, 24)  # six old, six new
    assert "6 of 12 rows ask about an input again" in capsys.readouterr().err
    assert asked(run) == [30, 6]
    second = artefact.read_arrays(run.answers_of(2), "answers")
    assert len(second["labels"]) == 6 and len(second["row_labels"]) == 12
    np.testing.assert_array_equal(second["row_labels"][:6], first["labels"][24:])
    np.testing.assert_array_equal(second["row_labels"][6:], second["labels"])
    go_on(run, 20, 0, split=60)  # nothing new, whatever the votes say now
    assert asked(run) == [30, 6, 0]
    np.testing.assert_array_equal(
        artefact.read_arrays(run.answers_of(3), "answers")["row_labels"], first["labels"][:20]
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
        stages.adopt(run, once._replace(votes=once.votes[[0, 1, 0]], ids=once.ids[[0, 1, 0]]), seed=3)
        stages.answer(run, MECHANISM, 1.0)
    found = artefact.read_arrays(run.answers, "answers")
    assert len(found["labels"]) == 2 and found["row_labels"][0] == found["row_labels"][2]


def test_a_further_list_must_name_its_inputs(tmp_path):
    run = begin(tmp_path, rows=30)
    with pytest.raises(PateError, match="must name its inputs"):
        go_on(run, 5, 30, ids=False)
    with pytest.raises(PateError, match="add --more"), run.writing():
        stages.adopt(run, votes(5, 30), seed=3)


def test_another_ensemble_is_refused(tmp_path):
    run = begin(tmp_path, rows=30)
    other = votes(5, 30)
    with pytest.raises(PateError, match="of 200 teachers on 3 classes"), run.writing():
        stages.adopt(run, other._replace(votes=other.votes * 2), seed=3, more=True)


def test_equal_votes_in_two_batches_share_no_noise(tmp_path):
    """Else equal answers would show that the votes are equal, and different ones that they are not."""
    run = begin(tmp_path, rows=12, epsilon=4.0, split=34)
    go_on(run, 12, 12, split=34)
    one, two = ledger.read(run.ledger)
    assert one["votes"] == two["votes"] and one["noise"] != two["noise"] and one["answers"] != two["answers"]


def test_another_mechanism_on_a_copy_of_the_run_shares_no_noise(tmp_path):
    run = begin(tmp_path, rows=12)
    digest = artefact.digest(stages.load_asked(run).votes)
    names = [stages.stream(mechanism, digest, 1) for mechanism in (MECHANISM, DiscreteGaussianMax(30.0))]
    assert stages.commitment(run, names[0]) != stages.commitment(run, names[1])
    assert ledger.read(run.ledger)[0]["noise"] == stages.commitment(run, names[0])


@pytest.mark.parametrize("again", [0.5, 2.0])
def test_a_budget_cannot_be_changed(tmp_path, again):
    run = begin(tmp_path, rows=12)
    with pytest.raises(PateError, match=rf"epsilon=1\.0 and delta=1e-05, not {again}"), run.writing():
        stages.answer(run, MECHANISM, again)
    with pytest.raises(PateError, match="delta=1e-06"), run.writing():
        stages.account(run, 1e-6)
    with pytest.raises(PateError, match=r"sigma=60\.0, not 30\.0"), run.writing():
        stages.answer(run, DiscreteGaussianMax(30.0))


def test_a_lost_or_older_ledger_is_never_answered_around(tmp_path):
    run = begin(tmp_path, rows=12)
    kept = [path.read_bytes() for path in (run.ledger, ledger.head_path(run.ledger))]
    go_on(run, 12, 12)
    for path, content in zip((run.ledger, ledger.head_path(run.ledger)), kept, strict=True):
        path.write_bytes(content)
    with (
        pytest.raises(PateError, match=r"answers-0002\.npz holds answers that .* does not show"),
        run.writing(),
    ):
        stages.answer(run, MECHANISM)
    run.ledger.unlink()
    with pytest.raises(PateError, match="end is missing"), run.writing():
        stages.answer(run, MECHANISM)


def test_a_lost_secret_is_not_drawn_anew(tmp_path):
    run = begin(tmp_path, rows=12)
    run.keys.unlink()
    with pytest.raises(PateError, match=r"keys\.json is missing"):
        run.secret(3)


def test_votes_made_elsewhere_do_not_enter_a_run_with_teachers(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.agree("data", {"dataset": "strokes"})
    with pytest.raises(PateError, match="has teachers of its own"):
        stages.adopt(run, votes(3), seed=None)


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
    worst, _ = accounting.worst_case(MECHANISM, [100] * 30, 1e-5)
    assert f"30 queries, epsilon {worst.epsilon:.4f}" in capsys.readouterr().out


def test_the_commands_go_on_with_a_run(tmp_path, capsys):
    for name, part in (("a", votes(30)), ("b", votes(20, 25))):
        voting.save_votes(tmp_path / f"{name}.npz", part)
    out = ["--out", str(tmp_path / "run")]
    main(["aggregate", str(tmp_path / "a.npz"), *out, "--budget-epsilon", "1", *NAMED])
    capsys.readouterr()
    main(["aggregate", str(tmp_path / "b.npz"), *out, "--more", "--json"])
    assert json.loads(capsys.readouterr().out)["queries"] == 45
    main(["account", str(tmp_path / "run")])
    assert "(1.0000, 1e-05)-differentially private" in capsys.readouterr().out


def test_continuous_noise_has_a_filter_too(tmp_path):
    run = begin(tmp_path, mechanism=GNMax(60.0))
    assert asked(run) == asked(begin(tmp_path, name="discrete"))
