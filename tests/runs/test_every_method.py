"""What holds of every kind of run, whatever its method: one battery for all of them.

A forger here edits a line of the ledger and writes chain and head anew, as somebody could who has the folder.
"""

import shutil
from pathlib import Path

import honest_runs
import pytest
import test_own_method
import test_publication
from test_own_method import PROMISE

from pate_jax import accounting
from pate_jax.audit import verify
from pate_jax.audit.subject import Subject
from pate_jax.runs import chain, ledger, methods
from pate_jax.runs.directory import RunDirectory, kind_of
from pate_jax.system import storage


def by_own(folder):
    assert test_own_method  # which adds the method
    methods.run("majority", honest_runs.table(), PROMISE, folder / "run", register=Path("none"))
    return RunDirectory(folder / "run")


METHODS = {
    "teachers": lambda folder: honest_runs.whole(),
    "votes from elsewhere": lambda folder: honest_runs.elsewhere(),
    "answers under a budget": lambda folder: honest_runs.budgeted(),
    "a stable list": lambda folder: test_publication.stable(),
    "neighbours": lambda folder: honest_runs.crowd("neighbours", "user"),
    "sums": lambda folder: honest_runs.crowd("sums", "user"),
    "sums in steps": lambda folder: honest_runs.in_steps(),
    "a comparison": lambda folder: honest_runs.compared(),
    "a choice of settings": lambda folder: RunDirectory(honest_runs.choice().out),
    "dp-sgd": lambda folder: test_publication.dpsgd(),
    "a method in one file": by_own,
}
FORGED = {  # what a forger writes in place of each field of a line
    "batch": lambda line: line["batch"] + 1,
    "event": lambda line: _louder(line["event"]),
    "exact": lambda line: "0" * 64,
    "public": lambda line: "1" * 64,
    "noise": lambda line: "2" * 64,
    "cost": lambda line: {**line["cost"], "rdp": line["cost"]["rdp"] / 2 or 1.0},
    "values": lambda line: _other(line["values"]),
}


def _louder(event):
    """The event with half of its noise, or, of a list without any of its own, more of what it releases."""
    inner = event.get("mechanism", event.get("training", event.get("tuned", event)))
    name = next(one for one in ("sigma", "scale", "noise_multiplier", "mu") if one in inner)
    changed = {**inner, name: inner[name] / 2 if inner[name] >= 2 else inner[name] * 1.5}
    nested = next((one for one in ("mechanism", "training", "tuned") if one in event), None)
    return changed if nested is None else {**event, nested: changed}


def _other(values):
    """Other noisy numbers, or another answer."""
    first, _, rest = values.partition(" ")
    other = str(int(first == "0")) if first in ("-", "0", "1") else f"1{first}"
    return f"{other} {rest}".strip()


@pytest.fixture(scope="module", params=METHODS)
def run(request, tmp_path_factory):
    return METHODS[request.param](tmp_path_factory.mktemp("run"))


def test_all_releases_have_one_form_and_noise_of_their_own(run):
    lines = list(ledger.entries(run.ledger))
    assert lines and {entry["kind"] for entry in chain.entries(run.ledger)} == {"release"}
    assert len({line.noise for line in lines}) == len(lines)
    assert len({line.stream for line in lines}) == len(lines)
    assert [line.batch for line in lines] == list(range(1, len(lines) + 1))


def test_its_checks_pass_and_its_statement_is_that_of_the_ledger(run):
    found = verify.of_run(run)
    assert found.of("failed") == []
    body = storage.read_json(run.statement, "statement") if run.statement.exists() else None
    if body is not None:  # a choice of settings states its winner in a folder of its own
        statement = accounting.Statement.from_dict(body)
        assert statement.headline.status == "publishable" and statement.private == (run.secret.seed is None)


@pytest.mark.parametrize("field", FORGED)
def test_a_forged_line_is_found(field, run, tmp_path):
    lines = chain.read(run.ledger)
    if field == "values" and not lines[-1]["values"]:
        pytest.skip("a line that was charged first holds nothing that leaves")
    shutil.copytree(run.root, tmp_path / "run")
    copy = RunDirectory(tmp_path / "run")
    for path in (copy.ledger, chain.head_path(copy.ledger)):
        path.unlink()
    for place, line in enumerate(lines):
        forged = {field: FORGED[field](line)} if place == len(lines) - 1 else {}
        kept = {name: part for name, part in line.items() if name not in chain.OF_THE_CHAIN}
        chain.append(copy.ledger, {**kept, **forged})
    checks = verify.checks_of(Subject(copy)).checks
    of_ledger = [one for name in ("charge", "ledger", "noise", "budget") for one in checks.get(name, ())]
    found = [
        finding
        for check in of_ledger
        for finding in verify.made(lambda check=check: check(Subject(copy)))
        if finding.outcome == "failed"
    ]
    assert found, f"{kind_of(run)}: nobody sees another {field}"


def test_every_kind_of_run_stands_in_the_battery():
    """Parties have a ledger of three kinds of lines of their own: tests/runs/test_parties.py.

    Several labels have a crowd's ledger each, and forgeries of their own: tests/runs/test_labels.py.
    """
    kinds = {"teachers", "crowd", "choice", "training", "method"}
    assert kinds == {*verify._OF_KIND} - {"party", "labels"}, "add the new kind to METHODS"
