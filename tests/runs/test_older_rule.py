"""Runs that an older version charged for noisy counts keep that charge; no edit swaps the two rules."""

import json

import numpy as np
import pytest

from pate_jax import voting
from pate_jax.accounting import curves, filter
from pate_jax.accounting.data_independent import worst_case
from pate_jax.accounting.index_curve import counts_curve, index_curve
from pate_jax.accounting.slack import sampler_slack
from pate_jax.audit import verify
from pate_jax.cli import main
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.runs import batches, budget, chain, ledger, record, register, reservation, stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.system import storage

MECHANISM, TEACHERS, CLASSES, ROWS = DiscreteGaussianMax(12.0), 50, 3, 20
SIZE = {"teachers": TEACHERS, "classes": CLASSES}


def votes(shift=0, rows=ROWS):
    ids = np.array([f"input {shift + row}" for row in range(rows)])
    return voting.Votes(np.tile(np.array([[40, 7, 3]], np.int32), (rows, 1)), ids=ids)


def begin(folder, name, epsilon=None, file=None):
    run = RunDirectory(folder / name)
    with run.writing():
        batches.adopt(run, votes(), None, relation="record")
        if file is not None:
            reservation.before_answers(run, file, MECHANISM, epsilon, None)
        batches.answer(run, MECHANISM, epsilon)
        stages.account(run)
    return run


def older(folder, name, monkeypatch, epsilon=None, file=None):
    """A run as the version before wrote it: lines of schema 3, and no word of a rule in any file."""
    with monkeypatch.context() as then:
        then.setattr(chain, "SCHEMA", 3)
        then.setattr(record, "NEWEST", "counts")
        run = begin(folder, name, epsilon, file)
        run.record.forget("charges")
    assert "rule" not in json.dumps([run.record.stages(), storage.read_json(run.statement, "statement")])
    return run


def charged(run, of):
    """What one query was charged, and costs by a curve, at the order of the ledger."""
    line = ledger.read(run.ledger)[0]
    return line.cost.rdp / line.asked, float(
        of(MECHANISM, TEACHERS, *[CLASSES][: of is index_curve], [line.order])[0]
    )


def counts(mechanism, teachers, orders):
    return counts_curve(mechanism, teachers, np.array(orders))


def rewrite(run, **changes):
    """The ledger made anew with other fields in its first line: a chain whose digests all fit."""
    (body, *_) = chain.read(run.ledger)
    schema = changes.pop("schema", body["schema"])
    kept = {
        name: value
        for name, value in body.items()
        if name not in ("artefact", "sequence", "previous", "digest")
    }
    run.ledger.unlink()
    chain.head_path(run.ledger).unlink()
    before, chain.SCHEMA = chain.SCHEMA, schema
    try:
        chain.append(run.ledger, {**{n: v for n, v in kept.items() if n != "schema"}, **changes})
    finally:
        chain.SCHEMA = before


def cost_by(rule, run):
    """The first line's cost as the other rule has it."""
    line = ledger.read(run.ledger)[0]
    order, cost = budget.cost_of(budget.fixed(run), MECHANISM, TEACHERS, CLASSES, line.asked, rule)
    return ledger.cost_to_dict(order, cost)


@pytest.mark.parametrize("epsilon", [None, 3.0])
def test_an_older_run_keeps_its_charges_and_passes(tmp_path, monkeypatch, epsilon, capsys):
    run, new = older(tmp_path, "older", monkeypatch, epsilon), begin(tmp_path, "new", epsilon)
    for each, of, other in ((run, counts, index_curve), (new, index_curve, counts)):
        spent, cost = charged(each, of)
        assert spent == pytest.approx(cost, rel=1e-8)
        assert abs(spent / charged(each, other)[1] - 1) > 0.1
        assert not verify.of_run(each).of("failed")
        assert not verify.at(each.release).of("failed")
    stated = [storage.read_json(each.public_statement, "statement") for each in (run, new)]
    figures = [one["figures"]["data_independent"]["epsilon"] for one in stated]
    assert ["rule" in one for one in stated] == [False, True]
    assert figures == [3.0, 3.0] if epsilon else figures[1] < 0.9 * figures[0]
    main(["budget", str(run.root), "--json"])
    shown = json.loads(capsys.readouterr().out)["spent"]
    if epsilon is None:
        worst, _ = worst_case(MECHANISM, [TEACHERS] * ROWS, 1e-5, classes=CLASSES, rule="counts")
        assert figures[0] <= shown["epsilon"] == pytest.approx(worst.epsilon, rel=1e-9)
    else:
        assert shown["rdp"] == pytest.approx(ledger.read(run.ledger)[0].cost.rdp)


def test_an_older_run_goes_on_by_its_own_rule(tmp_path, monkeypatch):
    run = older(tmp_path, "older", monkeypatch, 3.0)
    with run.writing():
        batches.adopt(run, votes(ROWS, 2000), None, more=True)
        batches.answer(run, MECHANISM)
        stages.account(run)
    first, second = ledger.read(run.ledger)
    assert (first.schema, second.schema) == (3, chain.SCHEMA)
    assert second.cost.rdp / second.asked == pytest.approx(first.cost.rdp / first.asked, rel=1e-8)
    fixed = filter.plan(MECHANISM, **SIZE, epsilon=3.0, delta=1e-5, rule="counts")
    each = filter.cost(MECHANISM, **SIZE, order=fixed.order, rule="counts")
    assert (budget.fixed(run), first.asked + second.asked) == (fixed, fixed.affords(filter.NOTHING, each))
    assert not verify.of_run(run).of("failed")


@pytest.mark.parametrize("epsilon", [None, 3.0])
def test_a_new_run_with_the_old_charges_is_refused(tmp_path, epsilon):
    run = begin(tmp_path, "new", epsilon)
    rewrite(run, cost=cost_by("counts", run))
    assert any("it was charged" in text for text in verify.of_run(run).of("failed"))
    again = begin(tmp_path, "unmarked", epsilon)
    again.record.forget("charges")  # and so it passes for one of an older version
    assert any("it was charged" in text for text in verify.of_run(again).of("failed"))


@pytest.mark.parametrize("epsilon", [None, 3.0])
def test_an_old_run_that_is_claimed_to_be_new_is_refused(tmp_path, monkeypatch, epsilon):
    run = older(tmp_path, "older", monkeypatch, epsilon)
    run.record.agree("charges", {"rule": "index"})
    assert any("it was charged" in text for text in verify.of_run(run).of("failed"))
    rewrite(run, cost=cost_by("index", run))
    assert any("newer than the version that charged it" in text for text in verify.of_run(run).of("failed"))


def test_a_statement_of_one_rule_is_none_of_the_other(tmp_path, monkeypatch):
    """In a release alone, where the statement is all there is."""
    for run in (older(tmp_path, "older", monkeypatch), begin(tmp_path, "new")):
        body = storage.read_json(run.public_statement, "statement")
        body = {name: value for name, value in body.items() if name != "rule"} | (
            {} if "rule" in body else {"rule": "index"}
        )
        storage.write_json(run.public_statement, "statement", body)
        assert any("is published for" in text for text in verify.at(run.release).of("failed"))
    storage.write_json(run.public_statement, "statement", {**body, "rule": "votes"})
    assert any("rule='votes' must be one of" in text for text in verify.at(run.release).of("failed"))


def test_a_rule_that_was_never_written_is_refused(tmp_path):
    run = begin(tmp_path, "new")
    storage.write_json(run.settings, "settings", {**run.record.stages(), "charges": {"rule": "none"}})
    with pytest.raises(PateError, match="rule='none' must be one of"):
        budget.summary(run)


def test_a_register_adds_each_run_by_its_own_rule(tmp_path, monkeypatch):
    file, orders = tmp_path / "register.jsonl", curves.default_orders()
    register.begin(file)
    with monkeypatch.context() as then:
        then.setattr(record, "NEWEST", "counts")
        begin(tmp_path, "older", file=file)
    begin(tmp_path, "new", file=file)
    assert [entry.plans[0].rule for entry in register.read(file).entries.values()] == ["counts", "index"]
    each = counts(MECHANISM, TEACHERS, orders) + index_curve(MECHANISM, TEACHERS, CLASSES, orders)
    assert sampler_slack(MECHANISM, ROWS, CLASSES) < 1e-20
    together = curves.epsilon(orders, ROWS * each, 1e-5).epsilon
    (group,) = register.summary(file, 1e-5)["groups"]
    assert group["sums"][0]["epsilon"] == pytest.approx(together, rel=1e-6)
