"""A release beside a private part that does not show it: whatever file is left, no run draws noise there."""

import json
import shutil
from dataclasses import replace

import honest_runs
import numpy as np
import party_files
import pytest
import test_baseline_runs
import test_stable_runs

from pate_jax import voting
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.runs import batches, chain, driver, stages
from pate_jax.runs.baselines import tasks, training
from pate_jax.runs.crowds import inputs as crowds
from pate_jax.runs.crowds import release
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.parties import join
from pate_jax.runs.tune import candidates
from pate_jax.runs.tune.candidates import Place, candidates_folder
from pate_jax.system import storage

UNSHOWN = "does not show: private/ was lost, or is an older copy"
OLDER = (
    "ledger.jsonl",
    "ledger.jsonl.head.json",
    "answers*.npz",
    "statement.json",
    "results.json",
    "report.html",
)


def restore(run):
    """The private part as a backup has it that was made before the first noise."""
    for pattern in OLDER:
        for path in run.private.glob(pattern):
            path.unlink()
    shutil.rmtree(candidates_folder(run.root), ignore_errors=True)
    return run


def answered(run):
    batches.answer(run, run.record.read().mechanism)


def counted(run):
    release.release(crowds.opened(run))


def trained(run):
    driver.release(tasks.Steps(run, tasks.opened(run)))


def chosen(run):
    candidates.begin(run, replace(honest_runs.choice(), out=run.root))


def stable():
    def make(out):
        run = RunDirectory(out)
        test_stable_runs.ask(run, 2, seed=None)
        with run.writing():
            stages.account(run, test_stable_runs.DELTA)

    return RunDirectory(honest_runs._once("stable-published", make))


def dpsgd():
    pytest.importorskip("jax_privacy")

    def make(out):
        out.mkdir()
        training.run(test_baseline_runs.config(test_baseline_runs.records(out), out / "run"))

    return RunDirectory(honest_runs._once("dpsgd-published", make) / "run")


def party():
    """One of three parties, after their vote."""

    def make(out):
        out.mkdir()
        party_files.prepare(out)
        party_files.vote(out, party_files.agree(out, "neighbours"))

    return RunDirectory(honest_runs._once("parties-published", make) / "run-east")


def voted(run):
    """The party's part of a vote, in a meeting that nobody opens."""
    home = party().root.parent
    member, key = party_files.member(home, "east", home / "vote.toml")

    def opener(*_):
        raise AssertionError("noise would leave now")

    join._vote(
        member._replace(run=run) if hasattr(member, "_replace") else replace(member, run=run),
        key,
        opener,
        None,
    )


def choice():
    return RunDirectory(honest_runs.choice().directory)


KINDS = {
    "teachers": (honest_runs.whole, answered),
    "votes from elsewhere": (honest_runs.elsewhere, answered),
    "stable answers": (stable, answered),
    "sums": (lambda: honest_runs.crowd("sums"), counted),
    "neighbours by user": (lambda: honest_runs.crowd("neighbours", "user"), counted),
    "several steps": (lambda: honest_runs.in_steps(), counted),
    "students compared": (honest_runs.compared, counted),
    "dp-sgd": (dpsgd, trained),
    "a choice of settings": (choice, chosen),
    "a party": (party, voted),
}


@pytest.mark.parametrize("kind", KINDS)
def test_any_single_file_of_a_release_stops_noise_that_its_ledger_does_not_show(kind, tmp_path):
    honest, draw = KINDS[kind]
    shutil.copytree(honest().root, tmp_path / "run")
    run = restore(RunDirectory(tmp_path / "run"))
    shutil.move(run.release, tmp_path / "release")
    left = storage.files(tmp_path / "release")
    assert left
    for path in [*left, tmp_path / "release" / ".DS_Store"]:
        place = run.release / path.relative_to(tmp_path / "release")
        place.parent.mkdir(parents=True)
        place.write_bytes(path.read_bytes() if path.exists() else b"")
        with run.writing(), pytest.raises(PateError, match=UNSHOWN):
            draw(run)
        assert not chain.read(run.ledger)
        shutil.rmtree(run.release)


@pytest.mark.parametrize("kind", ["teachers", "votes from elsewhere", "sums", "dp-sgd"])
def test_without_a_release_a_restored_run_goes_on(kind, tmp_path):
    """Nothing was published then, and the noise is the same as before."""
    honest, draw = KINDS[kind]
    shutil.copytree(honest().root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    before = chain.read(run.ledger)
    shutil.rmtree(restore(run).release)
    with run.writing():
        draw(run)
    assert chain.read(run.ledger) == before


def test_a_lost_secret_is_not_drawn_anew_beside_any_file_of_a_release(tmp_path):
    shutil.copytree(honest_runs.crowd("sums").root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    shutil.rmtree(run.private)
    for path, kept in {path: path.read_bytes() for path in storage.files(run.release)}.items():
        shutil.rmtree(run.release)
        path.parent.mkdir(parents=True)
        path.write_bytes(kept)
        with run.writing(), pytest.raises(PateError, match=r"whose secret .* does not show"):
            run.secret.draw(None)


@pytest.mark.parametrize("stage", ["another table", "the table of the second step"])
def test_a_crowd_whose_ledger_is_cut_short_draws_no_further_line(stage, tmp_path):
    shutil.copytree(honest_runs.in_steps().root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    cut(run, 3 if stage == "another table" else 2)
    with run.writing(), pytest.raises(PateError, match=UNSHOWN):
        counted(run)


def test_a_candidate_of_a_choice_is_not_made_again_beside_the_release(tmp_path):
    shutil.copytree(choice().root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    shutil.rmtree(Place(run.root, 1).home)
    with run.writing():
        begun = candidates.begin(run, replace(honest_runs.choice(), out=run.root))
        with pytest.raises(PateError, match=UNSHOWN):
            candidates.make(begun, 1)


# ---- further batches


def cut(run, lines):
    """The ledger as an older copy has it, chain and head and all."""
    content = run.ledger.read_bytes().splitlines(keepends=True)[:lines]
    run.ledger.write_bytes(b"".join(content))
    head = {"entries": lines, "digest": json.loads(content[-1])["digest"]}
    storage.write_json(chain.head_path(run.ledger), "ledger-head", head)
    if lines == 1:
        run.answers_of(2).unlink(missing_ok=True)


def batch(run, number, more=True):
    """A list of votes made elsewhere, and its answers."""
    random = np.random.default_rng(number)
    ids = np.array([f"pool-{number}-{row}" for row in range(25)])
    votes = random.multinomial(50, [0.5, 0.3, 0.2], size=25)
    batches.adopt(run, voting.Votes(votes, ids=ids), None, more=more, relation="record")
    batches.answer(run, DiscreteGaussianMax(20.0))


def test_further_batches_are_asked_beside_a_release_of_earlier_ones(tmp_path):
    shutil.copytree(honest_runs.budgeted().root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    with run.writing():
        for number in (7, 8):  # the release is of two batches, then of two of three
            batch(run, number)
        assert len(chain.read(run.ledger)) == 4
        stages.account(run)


def test_a_batch_is_not_asked_where_the_release_is_of_one_that_the_ledger_lacks(tmp_path):
    shutil.copytree(honest_runs.budgeted().root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    cut(run, 1)
    run.votes_of(2).unlink()
    run.record.revise({}, ["votes 2"])
    with run.writing(), pytest.raises(PateError, match=UNSHOWN):
        batch(run, 7)
    assert len(chain.read(run.ledger)) == 1


def test_a_release_without_its_statement_shows_nothing_of_its_batches(tmp_path):
    shutil.copytree(honest_runs.budgeted().root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    run.public_statement.rename(run.release / "report.html")
    with run.writing(), pytest.raises(PateError, match=UNSHOWN):
        batch(run, 7)


# ---- sanitised limits


def test_a_limit_is_not_drawn_again_beside_one_that_was_published(tmp_path):
    from test_budget import begin

    run = begin(tmp_path, rows=30, epsilon=None, mechanism=DiscreteGaussianMax(12.0), split=80)
    with run.writing():
        stages.account(run, 1e-5, False)
        stages.account(run, 1e-5, False, 0.99)
        kept = run.limits.read_bytes(), chain.head_path(run.limits).read_bytes()
        stages.account(run, 1e-5, False, 0.95)  # a second one, of which the first is shown
        run.limits.write_bytes(kept[0])
        chain.head_path(run.limits).write_bytes(kept[1])
        with pytest.raises(PateError, match=UNSHOWN):
            stages.account(run, 1e-5, False, 0.9)
        for path in (run.limits, chain.head_path(run.limits)):
            path.unlink()
        with pytest.raises(PateError, match=UNSHOWN):
            stages.account(run, 1e-5, False, 0.9)
