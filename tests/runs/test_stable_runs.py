"""Runs of stable answers: one list, charged once, that goes on with the same noise and ends at its cutoff."""

import shutil

import jax
import numpy as np
import pytest
from commands import call
from stable_laws import patterns

from pate_jax.accounting import Statement, stable
from pate_jax.aggregate import stable as sampler
from pate_jax.audit import verify
from pate_jax.audit.attacks import attack, every
from pate_jax.errors import PateError
from pate_jax.mechanisms.stable import StableAnswers
from pate_jax.runs import batches, budget, ledger, pipeline, plans, register, registration, stages
from pate_jax.runs.config_file import expanded, text
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import RunConfig
from pate_jax.runs.thresholds import StableChoice, check_threshold, threshold_warning
from pate_jax.student import Ridge
from pate_jax.sweep.grid import Grid
from pate_jax.system import storage
from pate_jax.voting import Votes, save_votes

LIST = StableAnswers(threshold=42, scale=3.0, cutoff=2)
DELTA = 1e-5
SIZES = (9, 7, 8)  # queries of the batches; the list ends in the second one
HOPELESS = (4, 12)  # the queries that are hardly ever answered


def histograms():
    votes = np.tile([[240, 10, 0]], (sum(SIZES), 1))
    votes[:, 1:] += np.random.default_rng(2).multinomial(20, [0.5, 0.5], sum(SIZES))
    votes[:, 0] = 250 - votes[:, 1:].sum(1)
    votes[list(HOPELESS)] = [126, 124, 0]
    return votes


def batch_of(number):
    first = sum(SIZES[: number - 1])
    rows = slice(first, first + SIZES[number - 1])
    ids = np.array([f"input {row}" for row in range(sum(SIZES))])
    return Votes(histograms()[rows].astype(np.int32), ids=ids[rows])


def ask(run, number=1, seed=3, mechanism=LIST, epsilon=2.01):
    """The batches up to this one, as commands ask for them."""
    with run.writing():
        for batch in range(1, number + 1):
            batches.adopt(run, batch_of(batch), seed, more=batch > 1, relation="record")
            batches.answer(run, mechanism, epsilon if batch == 1 else None)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A private run whose list has ended, accounted for."""
    run = RunDirectory(tmp_path_factory.mktemp("stable") / "run")
    ask(run, 2, seed=None)
    with run.writing():
        stages.account(run, DELTA)
    return run


def faults(run):
    return [fault for found in verify.verify(run).values() for fault in found]


def given(run):
    return " ".join(line.values for line in ledger.lines(run.ledger)).split()


def test_a_list_is_charged_once_ends_at_its_cutoff_and_stays_ended(ended):
    lines = ledger.read(ended.ledger)
    assert [line.event.asked for line in lines] == [9, 4]
    assert given(ended) == [("-" if row in HOPELESS else "0") for row in range(13)]
    assert lines[0].cost.rdp == pytest.approx(2.0, rel=1e-3)
    assert lines[0].cost.slack > LIST.cutoff * stable.false_answer(LIST)
    assert tuple(lines[1].cost) == (0, 0)
    before = ended.ledger.read_bytes()
    with ended.writing():
        answers = batches.answer(ended, LIST)
        with pytest.raises(PateError, match=r"ended with query 13, where 2 were unanswered"):
            batches.adopt(ended, batch_of(3), None, more=True)
    assert ended.ledger.read_bytes() == before
    assert np.asarray(answers.labels).tolist() == [-1 if row in HOPELESS else 0 for row in range(13)]
    assert not ended.votes_of(3).exists()


def test_the_statement_is_the_cost_of_the_list_and_the_verifier_agrees(ended):
    found = Statement.from_dict(storage.read_json(ended.public_statement, "statement"))
    assert found.headline.epsilon == stable.epsilon(LIST, DELTA) < 2.01
    assert (found.asked, found.answered, found.teachers) == (13, 11, 250)
    assert "ends with its unanswered query 2; 13 queries asked" in found.model_card_line()
    assert faults(ended) == []
    left = budget.summary(ended)["left"]
    assert left == {"queries": stable.MOST_QUERIES - 13, "unanswered": 0}


def draws(run, mechanism, line):
    """The noise of a batch's thresholds and queries, by their places in the list."""
    key = run.secret.key(line.stream)
    return [sampler._drawn(mechanism, one, 0, 32) for one in jax.random.split(key)]


def test_a_threshold_and_its_epoch_go_over_into_the_next_batch(tmp_path, seeds=4):
    """Against a loop over queries: a threshold is drawn once, under the name of the batch where it begins."""
    near = StableAnswers(threshold=99, scale=6.0, cutoff=8)  # close to the distances: chance decides
    seen = set()
    for seed in range(seeds):
        run = RunDirectory(tmp_path / str(seed))
        ask(run, 1, seed, near, None)
        if given(run).count("-") < near.cutoff:
            ask(run, 2, seed, near, None)
        noises, wanted = {}, []
        for line in ledger.lines(run.ledger):
            of_thresholds, of_queries = draws(run, near, line)
            noises.setdefault(0, of_thresholds[0])
            for row in batch_of(line.batch).votes:
                gone = wanted.count("-")
                if gone == near.cutoff:
                    break
                lead = np.sort(row)[-1] - np.sort(row)[-2]
                reading = max(0, -(-lead // 2) - 1) + of_queries[len(wanted)]
                wanted.append("0" if reading >= near.threshold + noises[gone] else "-")
                if wanted[-1] == "-":
                    noises[gone + 1] = of_thresholds[gone + 1]
        assert given(run) == wanted
        seen.add(tuple(wanted))
    assert len(seen) > seeds // 2


def test_a_budget_is_a_limit_of_the_whole_cost(tmp_path):
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(PateError, match=r"costs epsilon 2.0000 at delta=1e-05, more than the budget of 1"):
        ask(run, 1, epsilon=1.0)
    with pytest.raises(PateError, match=r"no finite epsilon at delta=1e-05"):
        ask(run, 1, mechanism=StableAnswers(20, 3.0, 2))
    assert "mechanism" not in run.record.read()
    assert not run.ledger.exists()
    with pytest.raises(PateError, match="above 124, the distance of unanimous votes"):
        check_threshold(StableAnswers(150, 3.0, 1), 250)
    assert "by noise alone" in threshold_warning(StableAnswers(130, 3.0, 1), 250)
    assert threshold_warning(StableAnswers(124, 3.0, 1), 250) is None


def test_a_register_adds_a_list_to_other_runs(tmp_path):
    run, file = RunDirectory(tmp_path / "run"), tmp_path / "register.jsonl"
    register.begin(file)
    with run.writing():
        batches.adopt(run, batch_of(1), None, relation="record")
        pipeline.before_answers(run, file, LIST, None, None)
        batches.answer(run, LIST)
    copy = RunDirectory(shutil.copytree(run.root, tmp_path / "copy"))
    with run.writing():
        batches.adopt(run, batch_of(2), None, more=True)
        batches.answer(run, LIST)
    assert [finding.outcome for finding in registration.examined(run, None)] == ["passed", "passed"]
    (entry,) = register.read(file).entries.values()
    (plan,) = entry.plans
    assert plan.events[0].asked == stable.MOST_QUERIES
    assert stable.epsilon(LIST, DELTA) * 0.9 < plans.together([plan], 1e-3) < 2.01
    with copy.writing():  # the run has gone on, so its copy cannot
        batches.adopt(copy, batch_of(3), None, more=True)
        with pytest.raises(PateError, match="does not fit its register"):
            batches.answer(copy, LIST)
    assert plans.together([plan, plan], 1e-2) > plans.together([plan], 1e-2)


def test_a_list_whose_cutoff_is_changed_before_it_is_asked_counts_as_it_is_asked(tmp_path):
    run, file = RunDirectory(tmp_path / "run"), tmp_path / "register.jsonl"
    register.begin(file)
    with run.writing():
        batches.adopt(run, batch_of(1), None, relation="record")
        for mechanism in (LIST, StableAnswers(42, 3.0, 1), LIST):
            pipeline.before_answers(run, file, mechanism, None, None)
    (entry,) = register.read(file).entries.values()
    assert [plan.events[0].mechanism.cutoff for plan in entry.plans] == [LIST.cutoff]


@pytest.mark.parametrize(("scale", "cutoff"), [(2.0, 1), (3.0, 2), (6.0, 3)])
def test_the_curve_covers_all_answers_but_the_false_ones(scale, cutoff):
    """The laws of whole lists of two neighbours by enumeration; every distance is above 0."""
    mechanism = StableAnswers(6, scale, cutoff)
    here, there = (6, 6, 6, 1, 6, 6, 6, 1), (5, 5, 5, 2, 5, 5, 5, 2)
    laws = [patterns(6, scale, cutoff, readings) for readings in (here, there)]
    for one, other in (laws, laws[::-1]):
        for order in (1.5, 4.0, 64.0):
            terms = [order * np.log(one[key]) + (1 - order) * np.log(other[key]) for key in one]
            renyi = np.logaddexp.reduce(terms) / (order - 1)
            assert renyi <= stable.curve(mechanism, np.array([order]))[0] <= cutoff * 3.01 / scale


def test_what_strays_covers_the_chance_of_a_wrong_answer():
    """By enumeration, of queries whose distance is 0: what is not in the curve is in `strays`."""
    law = patterns(4, 2.0, 2, (0, 0, 0, 0))
    chance = sum(share for pattern, share in law.items() if any(pattern))
    assert chance < stable.strays(StableAnswers(4, 2.0, 2)) < 1.5 * chance


def test_the_curve_is_that_of_randomised_response_for_each_epoch():
    one = 3 / 6.0
    yes = np.exp(one) / (1 + np.exp(one))
    for order in (1.25, 2.0, 10.0):
        told = np.log(yes**order * (1 - yes) ** (1 - order) + (1 - yes) ** order * yes ** (1 - order))
        found = stable.curve(StableAnswers(40, 6.0, 5), np.array([order]))[0]
        assert found == pytest.approx(5 * told / (order - 1), rel=1e-6)
        assert found >= 5 * told / (order - 1)


def test_what_has_no_meaning_for_a_list_is_refused_in_a_sentence(ended):
    for refused, words in (
        (lambda: stages.account(ended, DELTA, sanitise=0.99), "depends on no vote"),
        (lambda: every.attacked(ended, "mechanism"), "no attack by draws"),
        (lambda: attack.answering(ended), "no exact risk"),
        (lambda: Grid(("stable-answers",), ("3",)).mechanisms_for(250), "charged as a whole"),
        (lambda: StableChoice(threshold=3).settled(1.0, DELTA), "lacks a threshold or a scale"),
        (lambda: StableChoice().settled(None, DELTA), "lacks a threshold or a scale"),
    ):
        with pytest.raises(PateError, match=words):
            refused()


def test_settings_survive_their_file(tmp_path):
    config = RunConfig(voters="teachers", epsilon=2.01, mechanism=LIST)
    file = tmp_path / "config.toml"
    file.write_text(text(config))
    words = expanded(["--config", str(file)])
    assert words[-7:] == ["stable-answers", "--threshold", "42", "--scale", "3.0", "--cutoff", "2"]


def test_copies_that_ask_different_inputs_next_share_no_query_noise(tmp_path):
    """Only the present threshold is the same: equal noise would show that the votes are equal."""
    first, second = RunDirectory(tmp_path / "first"), RunDirectory(tmp_path / "second")
    ask(first, 1)
    shutil.copytree(first.root, second.root)
    ask(first, 2)
    with second.writing():
        other = batch_of(2)._replace(ids=np.array([f"another {row}" for row in range(SIZES[1])]))
        batches.adopt(second, other, 3, more=True)
        batches.answer(second, LIST)
    lines = [ledger.read(run.ledger)[1] for run in (first, second)]
    assert lines[0].noise != lines[1].noise
    assert lines[0].exact == lines[1].exact


def test_a_student_and_the_pages_of_a_list_that_ended(ended, tmp_path):
    run = RunDirectory(shutil.copytree(ended.root, tmp_path / "run"))
    inputs = np.random.default_rng(4).normal(size=(16, 3)).astype(np.float32)
    np.savez(tmp_path / "pool.npz", inputs=inputs)
    with run.writing():
        results = stages.teach(run, Ridge(), tmp_path / "pool.npz")
        stages.tell(run)
    assert (results["queries"], results["answered"], results["cutoff"]) == (13, 11, 2)
    for page in (run.report, run.public_report):
        text = page.read_text()
        assert "answered 11 of them. The last of these was not answered and ended the list" in text
        assert "were answered as they were" in text
        assert "to each was charged" not in text
    assert faults(run) == []


def test_commands_choose_threshold_and_scale_by_epsilon(tmp_path, capsys):
    save_votes(tmp_path / "votes.npz", batch_of(1))
    where = ("--out", tmp_path / "run", "--relation", "record", "--budget-epsilon", 2)
    assert call("aggregate", tmp_path / "votes.npz", *where, "stable-answers", "--cutoff", 2) == 0
    (line,) = ledger.read(RunDirectory(tmp_path / "run").ledger)
    assert line.event.mechanism == stable.calibrate(2.0, DELTA, cutoff=2)
    assert call("budget", tmp_path / "run") == 0
    assert "until 1 more are unanswered" in capsys.readouterr().out
