"""`pate tune`: what is drawn, charged, chosen and published; the same after a stop; and what is found out."""

import hashlib
import itertools
import json
import shutil
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import honest_runs
import numpy as np
import pytest
from scipy import stats

from pate_jax.accounting import composition, crowd_statement, curves, tuning
from pate_jax.accounting.costs import BestOf
from pate_jax.accounting.exact import counts
from pate_jax.accounting.tuning import NegativeBinomial, Tuned
from pate_jax.audit import verify
from pate_jax.audit.subject import Subject
from pate_jax.cli import tune as command
from pate_jax.errors import PateError
from pate_jax.mechanisms.codec import from_dict
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts
from pate_jax.runs import budget, plans, register, registration
from pate_jax.runs.crowds import students
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.plans import Plan
from pate_jax.runs.release import findings
from pate_jax.runs.settings import DataChoice, RunConfig
from pate_jax.runs.tune import candidates
from pate_jax.runs.tune.candidates import Choice, Place
from pate_jax.runs.tune.settings import Setting, TuneConfig
from pate_jax.student import Ridge, Supervised
from pate_jax.system import storage

SETTINGS, ORDERS = honest_runs.LISTED, curves.default_orders()


@pytest.fixture(scope="module")
def made():
    """A finished choice by user, and its results."""
    config = honest_runs.choice()
    return config, storage.read_json(RunDirectory(config.directory).results, "results")


@pytest.fixture
def copy(made, tmp_path):
    """The same choice, to be changed."""
    shutil.copytree(made[0].directory, tmp_path / "copy")
    return RunDirectory(tmp_path / "copy")


def failures(run, *names):
    """Which of these checks fail."""
    subject = Subject(run)
    checks = verify.checks_of(subject).checks
    found = {name: findings.made(*(partial(one, subject) for one in checks[name])) for name in names}
    return {name for name in names if any(one.outcome == "failed" for one in found[name])}


def test_the_published_figure_is_that_of_the_whole_choice(made):
    config, results = made
    published = storage.read_json(RunDirectory(config.directory).public_statement, "statement")
    assert 2.999 < published["figures"]["data_independent"]["epsilon"] <= 3.0
    assert from_dict(Tuned, published["tuned"], "tuned").epsilon(1e-5) <= 3.0
    assert published["relation"] == "user" and results["tuned"]["settings"] == 2
    card = (config.directory / "release" / "student" / "MODEL_CARD.md").read_text()
    assert "a random number of candidates, 3 on average" in card


def test_it_passes_every_check_also_the_deep_ones(made):
    findings = verify.at(made[0].directory, deep=True)
    assert not findings.of("failed") and not findings.of("unchecked")


def test_where_the_data_are_gone_what_needs_them_is_unchecked(copy, monkeypatch):
    opened = Subject.opened.func

    def without_data(subject):
        return opened(subject) if isinstance(subject.run, Place) else findings.unchecked("the data are gone")

    without = property(without_data)
    monkeypatch.setattr(Subject, "opened", without)
    found = verify.at(copy.root, deep=True)
    assert not found.of("failed") and any("cannot be opened" in said for said in found.of("unchecked"))


def test_nothing_that_is_published_or_said_tells_how_many_there_were(made, capsys):
    config, results = made
    choice = Choice(RunDirectory(config.directory), None)
    assert len(choice.numbers) == 3
    files = [path for path in (config.directory / "release").rglob("*.*") if path.suffix != ".npz"]
    texts = [path.read_text() for path in files]
    assert not any("candidates/" in text for text in [*texts, json.dumps(results)])
    candidates.run(config)
    said = capsys.readouterr()
    assert said.out == "" and said.err.splitlines()[:-1] == candidates.said(config)[:-1]


def test_the_noisy_score_decides_and_is_no_exact_one(made):
    choice = Choice(RunDirectory(made[0].directory), None)
    places = [Place(choice.run.root, number) for number in choice.numbers]
    exact = [int(students.load_score(place)[0, 0]) for place in places]
    noisy = [candidates.score(place) for place in places]
    assert exact != noisy
    assert choice.run.record.read().of("chosen") == {"number": candidates.best(noisy)}


def test_all_candidates_hold_out_the_same_users_and_train_on_none_of_them(made):
    config, _ = made
    choice = Choice(RunDirectory(config.directory), candidates.open_data(config.data))
    crowds = [choice.crowd(number) for number in choice.numbers]
    for crowd in crowds:
        assert np.array_equal(crowd.held_out, crowds[0].held_out) and crowd.held_out.any()
        users = crowd.dataset.private.users
        assert not {*users[crowd.held_out]} & {*users[~crowd.held_out]}
        assert len(crowd.people.labels) == (~crowd.held_out).sum()


def test_a_choice_that_was_stopped_ends_with_the_same_bytes(made, tmp_path, monkeypatch):
    config, _ = made
    real, stops = candidates.release.release, itertools.count(1)

    def stopped(crowd):
        real(crowd)
        if next(stops) == 2:
            raise KeyboardInterrupt

    again = replace(config, out=tmp_path / "again")
    monkeypatch.setattr(candidates.release, "release", stopped)
    with pytest.raises(KeyboardInterrupt):
        candidates.run(again)
    candidates.run(again)
    for path in sorted(config.directory.rglob("*")):
        if path.is_file() and (path.suffix in (".npz", ".jsonl") or "release" in path.parts):
            assert path.read_bytes() == (again.directory / path.relative_to(config.directory)).read_bytes()


@pytest.mark.parametrize("kill", range(1, 7))
def test_a_choice_that_was_stopped_as_it_began_goes_on(made, tmp_path, monkeypatch, kill):
    """At each write up to those of the ledger's only line."""
    again = replace(made[0], out=tmp_path / "again")
    opened = candidates.open_data(again.data)
    monkeypatch.setattr(candidates, "open_classes", lambda *of: opened)
    with monkeypatch.context() as patch:
        honest_runs.stop_at_write(patch, kill)
        with pytest.raises(KeyboardInterrupt):
            candidates.begin(RunDirectory(again.directory), again)
    choice = candidates.begin(RunDirectory(again.directory), again)
    assert choice.facts == RunDirectory(made[0].directory).record.read().of("tune")


def test_no_warning_tells_of_a_candidate_that_is_not_published(made, tmp_path):
    """A candidate whose noisy answers leave out a class would be told of, although nothing pays for that."""
    few = Setting("neighbours", queries=1, student=Supervised(net="table", steps=2))
    config = replace(made[0], settings=(few, SETTINGS[0]), out=tmp_path / "choice")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        candidates.run(config)
    assert not [one for one in told if "no answer names class" in str(one.message)]


def test_the_list_and_its_cost_cannot_be_changed_later(made):
    config, _ = made
    for other in (
        {"settings": (*SETTINGS, SETTINGS[0])},
        {"epsilon": 4.0},
        {"candidates": 5.0},
        {"each_once": True},
        {"by": "record"},
    ):
        with pytest.raises(PateError, match="another --out"):
            candidates.run(TuneConfig(**{**vars(config), **other}))


@pytest.mark.parametrize("part", ["private", "public"])
def test_records_that_changed_since_a_choice_began_are_refused(made, monkeypatch, part):
    """The best of candidates on different records is not what the figure is proved for."""
    config, _ = made
    data = candidates.open_data(config.data)
    records = getattr(data, part)
    changed = replace(
        data, **{part: records._replace(inputs=records.inputs + (records.ids == records.ids[0])[:, None])}
    )
    monkeypatch.setattr(candidates, "open_classes", lambda *of: changed)
    with pytest.raises(PateError, match="were changed since"):
        candidates.run(config)


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_another_winner_is_found_out(copy):
    number = copy.record.read().of("chosen")["number"]
    change(copy.settings, f'"number": {number}', f'"number": {1 + number % 3}')
    assert failures(copy, "drawn", "chosen", "charge") == {"chosen"}


def test_a_winner_that_was_made_again_is_found_out(copy):
    """With the secret of a fourth candidate, whose noise nothing pays for."""
    choice = Choice(copy, candidates.open_data(copy.record.read().data))
    choice.picks.append(0)
    kept = [
        (path, path.rename(path.with_name(f"{path.name}-aside"))) for path in (copy.release, copy.results)
    ]
    candidates.make(choice, 4)  # beside a release it is refused
    for path, aside in kept:
        aside.rename(path)
    shutil.copytree(Place(copy.root, 4).scored, copy.student, dirs_exist_ok=True)
    assert failures(copy, "drawn", "chosen", "charge") == {"drawn", "chosen"}


def test_a_candidate_with_another_secret_is_found_out(copy):
    shutil.copy(Place(copy.root, 1).keys, Place(copy.root, 2).keys)
    assert failures(copy, "drawn", "chosen", "noise") == {"drawn", "noise"}


def test_a_missing_candidate_is_found_out(copy):
    shutil.rmtree(Place(copy.root, 3).home)
    assert failures(copy, "drawn") == {"drawn"}


def test_other_commands_refuse_a_choice(copy):
    with pytest.raises(PateError, match="choice of settings"):
        budget.summary(copy)
    with pytest.raises(PateError, match="choice of settings"):
        copy.record.agree("crowd", {"voters": "sums"})
    with pytest.raises(PateError, match="choice of settings"):
        copy.record.revise({"compared": {}, "crowd": {"voters": "sums"}})


class Fake:
    """A secret for each number."""

    def __init__(self, number):
        self.number = number

    def derive(self, purpose):
        return hashlib.sha256(f"{self.number} {purpose}".encode()).digest()


def test_numbers_and_settings_are_drawn_by_their_laws():
    tuned = Tuned(NegativeBinomial(1.0, 0.4), 0.1, 3)
    drawn = [candidates.picks(Fake(number), tuned) for number in range(2000)]
    lengths = np.bincount([min(len(one), 6) for one in drawn], minlength=7)[1:]
    chances = tuning.law(tuned.law)
    wished = np.append(chances[1:6], chances[6:].sum()) * 2000
    assert stats.chisquare(lengths, wished).pvalue > 1e-3
    assert stats.chisquare(np.bincount(list(itertools.chain.from_iterable(drawn)))).pvalue > 1e-3
    assert stats.chisquare(lengths, np.roll(wished, 1)).pvalue < 1e-9


def test_draws_do_not_read_the_records(made):
    config, _ = made
    run = RunDirectory(config.directory)
    both = Choice(run, candidates.open_data(config.data)), Choice(run, None)
    assert both[0].picks == both[1].picks
    assert [both[0].setting(one) for one in (1, 2, 3)] == [both[1].setting(one) for one in (1, 2, 3)]


def test_the_first_of_the_best_has_the_law_of_the_theorem():
    """Every sequence of up to seven outcomes of a mechanism with ties, against `F^k - F_before^k`."""
    chances, scores = np.array([0.5, 0.2, 0.2, 0.1]), [0, 1, 1, 2]
    law = tuning.law(NegativeBinomial(1.0, 0.3))
    found, wished = np.zeros(4), np.zeros(4)
    for number in range(1, 8):
        for one in itertools.product(range(4), repeat=number):
            winner = one[candidates.best([scores[outcome] for outcome in one]) - 1]
            found[winner] += law[number] * chances[list(one)].prod()
        below = np.array([0.0, 0.5, 0.9, 1.0]) ** number
        of_score = np.diff(below)
        wished += law[number] * np.array([of_score[0], of_score[1] / 2, of_score[1] / 2, of_score[2]])
    np.testing.assert_allclose(found, wished, rtol=1e-12)


def test_each_setting_once_is_charged_as_all_of_them(made):
    config = TuneConfig(**{**vars(made[0]), "each_once": True})
    assert config.tuned.of_all and candidates.picks(Fake(1), config.tuned) == [0, 1]
    assert composition.gaussian_epsilon(config.tuned.mu * 2**0.5, 1e-5) == pytest.approx(3.0, rel=1e-5)


def written(folder, text):
    path = folder / "list.toml"
    path.write_text(text)
    return path


def test_a_list_is_read_by_the_flags_of_a_run(tmp_path):
    second = '[[candidate]]\nvoters = "neighbours"\nqueries = 12\n"student.method" = "ridge"\n'
    path = written(tmp_path, f'[[candidate]]\nvoters = "sums"\n{second}')
    assert command.read(path) == [Setting("sums"), Setting("neighbours", queries=12, student=Ridge())]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('epsilon = 1\n[[candidate]]\nvoters = "sums"\n', "nothing else"),
        ('[[candidate]]\nepsilon = 1.0\nvoters = "sums"\n', "command line"),
        ("[[candidate]]\nqueries = 3\n", "has voters"),
        ("candidate =", "no TOML"),
    ],
)
def test_a_list_that_is_none_is_refused(tmp_path, text, named):
    with pytest.raises(PateError, match=named):
        command.read(written(tmp_path, text))


def test_one_setting_is_no_choice(made):
    with pytest.raises(PateError, match="no choice"):
        TuneConfig(**{**vars(made[0]), "settings": SETTINGS[:1]})
    with pytest.raises(PateError, match="is no candidate"):
        Setting.of(RunConfig())
    with pytest.raises(PateError, match="does not exist"):
        command.read(Path("absent.toml"))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("voters", ["sums", "neighbours"])
def test_what_one_candidate_releases_costs_no_more_than_its_part(epsilon, voters):
    """Number of voters, table and score together, for a voter who is held out, or votes, or moves."""
    tuned = TuneConfig(DataChoice(), SETTINGS, epsilon=epsilon).tuned
    one = candidates.epsilon_of_one(tuned, 1e-5)
    mu = counts.mu_for(one, 1e-5)
    table = ClassSums(3, 4, 100, 200 / mu * (1 + 2e-6))
    if voters == "neighbours":
        table = NeighbourCounts(20, 3, 2, 2 / mu * (1 + 2e-6))
    released = [table, counts.headcount_for(mu, voters), counts.score_for(mu, voters)]
    assert counts.worst(released, 1e-5) <= composition.gaussian_epsilon(tuned.mu, 1e-5)
    assert crowd_statement(released, 1e-5, voters=9, tuned=tuned, private=True).headline.epsilon <= epsilon
    dear = [*released[:2], counts.score_for(3 * mu, voters)]
    with pytest.raises(PateError, match="more than a candidate"):
        crowd_statement(dear, 1e-5, voters=9, tuned=tuned, private=True)


def test_a_copy_of_a_choice_on_other_records_does_not_fit_its_register(made, tmp_path, monkeypatch):
    """Restored to before anything but its secret was written, it was charged once for two releases."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    config = replace(made[0], seed=None, register=None, out=tmp_path / "run")
    data = candidates.open_data(config.data)
    fewer = replace(data, private=data.private.take(np.arange(1, len(data.private.ids))))
    run = RunDirectory(config.directory)
    run.secret.draw(None)
    for name in ("backup", "copy"):
        shutil.copytree(run.root, tmp_path / name)
    candidates.begin(run, config)
    with pytest.raises(PateError, match="goes on in one place alone"):
        candidates.begin(RunDirectory(tmp_path / "copy"), config)
    shutil.rmtree(run.root)
    shutil.copytree(tmp_path / "backup", run.root)
    monkeypatch.setattr(candidates, "open_classes", lambda *of: fewer)
    with pytest.raises(PateError, match="does not fit its register"):
        candidates.begin(run, config)


def test_a_register_shows_a_choice_and_its_limit_refuses_it(made, tmp_path):
    config, _ = made
    data = candidates.open_data(config.data)
    file, run = tmp_path / "register.jsonl", RunDirectory(tmp_path / "a")
    other = RunDirectory(tmp_path / "other")
    for one in (run, other):
        one.secret.draw(None)
    spends = Plan((BestOf(config.tuned),), "user")
    register.begin(file)
    registration.enter(run, spends, lambda: data, file)
    (entered,) = next(iter(register.read(file).entries.values())).plans
    assert entered == spends and entered.covers(spends)
    assert not entered.covers(Plan((BestOf(replace(config.tuned, mu=9.0)),), "user"))
    assert plans.together([spends], 1e-5) >= config.tuned.epsilon(1e-5)
    curve = entered.curve(ORDERS)
    np.testing.assert_allclose([entered.cost(order).rdp for order in ORDERS[::40]], curve[::40], rtol=1e-6)
    tight = tmp_path / "tight.jsonl"
    register.begin(tight)
    register.set_limit(tight, 1.0, 1e-5)
    with pytest.raises(PateError, match="would be exceeded"):
        registration.enter(other, spends, lambda: data, tight)
    begun = tmp_path / "b"
    with pytest.raises(PateError, match="promises nothing"):
        candidates.run(replace(config, out=begun, register=file))
    assert not (begun / "private" / "ledger.jsonl").exists()
