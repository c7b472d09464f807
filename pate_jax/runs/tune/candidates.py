"""The candidates of a choice: each a crowd's run up to its score, in a folder and with a secret of its own.

A candidate releases, with noise, the number of voters, one table of those who are not held out, and how many
held-out voters agree with its student. All this together is mu-Gaussian-DP (`accounting.exact.counts`),
whatever its settings are. Whom all of them hold out follows from one key, so that their scores compare.

The one line of a choice's ledger, which says what all of it costs, is durable before its first candidate.
It says nothing of how many candidates there are. Each candidate's own ledger lies with it, and counts for
nothing more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from pate_jax.accounting import composition, tuning
from pate_jax.accounting.costs import BestOf
from pate_jax.accounting.exact import counts
from pate_jax.accounting.tuning import Tuned
from pate_jax.data import Dataset, relation
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms.codec import from_dict, to_dict
from pate_jax.runs import budget, driver, registration, results
from pate_jax.runs.crowds import release, stages, steps, students
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.directory import RunDirectory, close
from pate_jax.runs.driver import ChargedFirst, Question
from pate_jax.runs.inputs import WHERE, Inputs, open_classes, open_data, record
from pate_jax.runs.plans import Plan
from pate_jax.runs.record import CANDIDATE, CROWD, TRIAL, TUNE, Settings
from pate_jax.runs.secret import Secret
from pate_jax.runs.settings import STROKES, CrowdChoice, DataChoice, PartitionChoice, to_settings
from pate_jax.runs.tune.settings import Setting, TuneConfig
from pate_jax.system import devices, progress, storage
from pate_jax.system.tasks import HERE, Engine, opened_once


@dataclass(frozen=True, init=False)
class Place(RunDirectory):
    """The directory of a choice as one of its candidates sees it: the first is number 1.

    >>> Place("run", 2).ledger.as_posix(), Place("run", 2).public_statement.as_posix()
    ('run/private/candidates/0002/ledger.jsonl', 'run/release/statement.json')
    """

    number: int

    def __init__(self, root: Path | str, number: int) -> None:
        super().__init__(root)
        object.__setattr__(self, "number", number)

    @property
    def home(self) -> Path:
        """What is the candidate's own."""
        return candidates_folder(self.root) / f"{self.number:04d}"

    @property
    def ledger(self) -> Path:  # type: ignore[override]
        """The candidate's own ledger, without the cost of the choice."""
        return self.home / "ledger.jsonl"

    @property
    def answers(self) -> Path:  # type: ignore[override]
        """Its noisy table."""
        return self.home / "answers.npz"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Make its folder; the choice holds the lock."""
        close(self.home)
        yield


def candidates_folder(root: Path) -> Path:
    """The folder of all"""
    return root / "private" / "candidates"


def candidate_folders(root: Path) -> list[str]:
    """The names of the folders that are there."""
    here = candidates_folder(root)
    return sorted(path.name for path in here.iterdir()) if here.is_dir() else []


_ROOM = 1 - 1e-9  # of a candidate's mu, so that its own epsilon never exceeds it by rounding


@dataclass(frozen=True)
class Choice:
    """A choice that was begun, as its files describe it; data and public spaces are opened once."""

    run: RunDirectory
    dataset: Dataset | None = field(repr=False)  # None where they cannot be had
    learned: dict[tuple[str | None, str], dict[str, Any]] = field(default_factory=dict, repr=False)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What was recorded of it."""
        return self.run.record.read().of(TUNE)

    @property
    def delta(self) -> float:
        """The delta of its statement."""
        return float(self.facts["delta"])

    @cached_property
    def tuned(self) -> Tuned:
        """The law of its candidates and what each may cost."""
        return cast(Tuned, from_dict(Tuned, self.facts["tuned"], "tuned"))

    @cached_property
    def picks(self) -> list[int]:
        """The setting of each candidate, by its place in the list."""
        return picks(self.run.secret, self.tuned)

    @property
    def numbers(self) -> range:
        """The numbers of its candidates; how many there are is secret."""
        return range(1, len(self.picks) + 1)

    def setting(self, number: int) -> Setting:
        """The setting of a candidate."""
        return Setting.from_dict(self.facts["settings"][self.picks[number - 1]])

    def crowd(self, number: int) -> Crowd:
        """A candidate whose secret is there already."""
        place, setting = Place(self.run.root, number), self.setting(number)
        return _crowd(self, place, setting, self.chosen(setting, place.secret.seed))

    def chosen(self, setting: Setting, seed: int | None) -> CrowdChoice:
        """How the voters of a setting vote, at what a candidate may cost."""
        one = epsilon_of_one(self.tuned, self.delta)
        return setting.crowd(self.facts["by"], seed, one, self.delta)

    def recorded(self, number: int) -> dict[str, dict[str, Any]]:
        """What the settings of a candidate say."""
        place, setting = Place(self.run.root, number), self.setting(number)
        crowd = to_settings(self.chosen(setting, place.secret.seed))
        held_out = self.run.secret.derive("held out").hex()
        return {
            "data": self.run.record.read().of("data"),
            CROWD: crowd,
            "relation": {"relation": crowd["by"]},
            CANDIDATE: {"held_out": held_out, "tuned": to_dict(self.tuned)},
            "student": to_settings(setting.student),
            **({TRIAL: {"trial": True}} if TRIAL in self.run.record.read() else {}),
        }


def begin(run: RunDirectory, config: TuneConfig) -> Choice:
    """Open the data, check every setting on public things, and charge the choice.

    Nothing is recorded before all settings were found fit, so a mistyped command can be given again.
    """
    known = run.record.read()
    if TUNE not in known and known.stages:
        raise PateError(f"{run.root} is another run: choose another --out for this choice of settings")
    data = config.data.drawn(STROKES)
    dataset, tuned = open_classes(data, "pate tune", run.encoded), config.tuned
    relation.check_users_count(dataset, config.by)
    records = records_of(dataset)
    _check_same(known, records)
    choice = Choice(run, dataset)
    listed = [setting.to_dict() for setting in config.settings]
    for setting in config.settings:
        _check(
            choice,
            setting,
            setting.crowd(config.by, None, epsilon_of_one(tuned, config.delta), config.delta),
            data,
        )
    run.secret.draw(config.seed)
    said = {"by": config.by, "epsilon": config.epsilon, "delta": config.delta, "tuned": to_dict(tuned)}
    # first: by it a choice that was stopped here is recognised
    run.record.agree(TUNE, {**said, "settings": listed, "records": records}, but_not=["records"])
    record(run, dataset, data)
    run.record.agree("relation", {"relation": config.by})
    budget.warn_of_delta(config.delta, len(dataset.private.ids))
    registration.enter(run, plan(choice), lambda: dataset, config.register)
    driver.release(Candidates(choice))
    return choice


def records_of(dataset: Dataset) -> str:
    """A digest of the private and the public records."""
    return storage.digest(*dataset.private, *dataset.public)


def _check_same(known: Settings, records: str) -> None:
    """Refuse to go on with other data: the figure needs candidates that are alike in law."""
    if TUNE in known and known.of(TUNE).get("records") != records:
        raise PateError(
            f"the private or the public records were changed since {known.file} was begun, and candidates of "
            "one choice must see the same ones: restore them, or choose another --out, and add up both costs"
        )


def plan(choice: Choice) -> Plan:
    """All that a choice may spend, as a register writes it down."""
    return Plan((BestOf(choice.tuned),), choice.facts["by"])


@dataclass(frozen=True)
class Candidates(ChargedFirst[BestOf]):
    """All candidates of a choice, of which the best is one release; how many there are is secret."""

    choice: Choice

    @property
    def run(self) -> RunDirectory:  # type: ignore[override]
        """Where they lie."""
        return self.choice.run

    def plan(self) -> Plan:
        """All that the choice may spend."""
        return plan(self.choice)

    def question(self) -> Question[BestOf]:
        """The choice from a list of settings, at what was allowed."""
        facts = self.choice.facts
        asked = {name: facts[name] for name in ("settings", "epsilon", "delta")}
        named = storage.digest(np.array(json.dumps(asked, sort_keys=True)))
        return Question(1, BestOf(self.choice.tuned), named)

    def measure(self, question: Question[BestOf]) -> np.ndarray:
        """What names the private and public records: a copy on others does not fit its register."""
        dataset = self.choice.dataset
        return np.array(self.choice.facts["records"] if dataset is None else records_of(dataset))


def make(choice: Choice, number: int) -> Place:
    """A candidate up to its noisy score; what is finished is not repeated."""
    place = Place(choice.run.root, number)
    with place.writing():
        choice.run.secret.hand_down(place.secret, f"candidate {number}")
        for stage, settings in choice.recorded(number).items():
            place.record.agree(stage, settings, but_not=WHERE)
        release.release(choice.crowd(number))
    return place


def epsilon_of_one(tuned: Tuned, delta: float) -> float:
    """The epsilon of one candidate by itself, by which its noise is chosen; it is never published."""
    found = composition.gaussian_epsilon(tuned.mu * _ROOM, delta)
    if not 0 < counts.mu_for(found, delta) <= tuned.mu:
        raise PateError(f"delta={delta:g} leaves a candidate no epsilon at mu={tuned.mu:g}: lower it")
    return found


def _crowd(choice: Choice, place: RunDirectory, setting: Setting, how: CrowdChoice) -> Crowd:
    """A crowd on the data of the choice, in a space that is learned once."""
    data = place.record.read().data if place.settings.exists() else DataChoice()
    cut = PartitionChoice(by=how.by, seed=how.seed)
    inputs = Inputs(place, data, cut, TeacherConfig(), opened=choice.dataset)
    learned = choice.learned.setdefault((setting.space, setting.encoder), {})
    return Crowd(inputs, how, learned=learned)


def _check(choice: Choice, setting: Setting, how: CrowdChoice, data: DataChoice) -> None:
    """Refuse a setting that cannot be a candidate, by public things alone."""
    cut = PartitionChoice(by=how.by, seed=how.seed)
    probe = Place(choice.run.root, 0)  # nothing is ever written there
    inputs = Inputs(probe, data, cut, TeacherConfig(), tolerant=True, opened=choice.dataset)  # it is checked
    learned = choice.learned.setdefault((setting.space, setting.encoder), {})
    crowd = Crowd(inputs, how, learned=learned)
    students.check(setting.student, crowd)
    crowd.check_public()
    crowd.mu  # noqa: B018  # refuses what no noise is wide enough for
    crowd.check_judges("`pate tune`")


_BITS = 53  # of a number from 0 to 1 that float64 holds exactly


def picks(secret: Secret, tuned: Tuned) -> list[int]:
    """For each candidate its place in the list of settings, from 0."""
    if tuned.of_all:
        return list(range(tuned.settings))
    drawn = int.from_bytes(secret.derive("number of candidates")[:8], "big") >> (64 - _BITS)
    number = tuning.number_at(tuned.law, drawn / 2**_BITS)
    return [_pick(secret, candidate, tuned.settings) for candidate in range(1, number + 1)]


def _pick(secret: Secret, candidate: int, settings: int) -> int:
    """A place in the list; 256 bits leave no bias that matters."""
    return int.from_bytes(secret.derive(f"setting of candidate {candidate}"), "big") % settings


def best(scores: list[int]) -> int:
    """The number, from 1, of the first of the candidates with the highest noisy score.

    The first of equal ones is as good as a random one, because candidates are independent and of one law.

    >>> best([7, 9, 9])
    2
    """
    return 1 + scores.index(max(scores))


def run(config: TuneConfig, engine: Engine = HERE) -> dict[str, Any]:
    """Charge, make and score all candidates, and publish the best; what is finished is not repeated."""
    if devices.processes() > 1:
        raise PateError(f"a choice of settings runs in one process, not in {devices.processes()}")
    run = RunDirectory(config.directory)
    with run.writing():
        choice = begin(run, config)
        for line in said(config):
            progress.say(line)
        with progress.quiet():
            there = choice if engine is HERE else run.root
            dict(engine.each(one_candidate, [Candidate(there, number) for number in choice.numbers]))
            places = [Place(run.root, number) for number in choice.numbers]
            return publish(choice, best([score(place) for place in places]))


class Candidate(NamedTuple):
    """A candidate to be made: of a choice that is open here, or of one that a worker opens."""

    choice: Choice | Path
    number: int


def one_candidate(one: Candidate) -> None:
    """Make a candidate, in its own folder."""
    choice = one.choice if isinstance(one.choice, Choice) else _opened(one.choice)
    with progress.quiet():
        make(choice, one.number)


@opened_once
def _opened(root: Path) -> Choice:
    run = RunDirectory(root)
    return Choice(run, open_data(run.record.read().data))


def score(place: Place) -> int:
    """The noisy score of a candidate: how many held-out voters agree with its student."""
    return steps.shown(place).outcomes()[0]


def publish(choice: Choice, number: int) -> dict[str, Any]:
    """Write the statement, the release and the pages of the best candidate, from what it has released."""
    place = Place(choice.run.root, number)
    choice.run.record.agree("chosen", {"number": number})
    stages.account(place, choice.delta)
    stages.teach(place, choice.setting(number).student, choice.crowd(number))
    return results.tell_plain(place) | registration.shown(choice.run)


def said(config: TuneConfig) -> list[str]:
    """What the user should know before the first candidate; it shows nothing that is drawn.

    >>> from pate_jax.runs.settings import DataChoice
    >>> from pate_jax.runs.tune.settings import Setting
    >>> both = (Setting("sums"), Setting("neighbours"))
    >>> said(TuneConfig(DataChoice(), both, each_once=True))[0]
    'Each candidate may cost epsilon 0.6841 by itself, so that the whole choice costs 1.'
    """
    one = epsilon_of_one(config.tuned, config.delta)
    lines = [
        f"Each candidate may cost epsilon {one:.4f} by itself, so that the whole choice costs "
        f"{config.epsilon:g}."
    ]
    lines.append(
        "Free choices come first: the student of noisy answers is chosen without a cost (--student.method "
        "auto), and `pate plan` rehearses voters on public inputs."
    )
    if not config.each_once:
        lines.append(
            f"About {config.candidates:g} candidates are tried. Their number is secret, and how long this "
            "takes would tell it: start it where nobody who reads the result sees when it ends."
        )
    return lines
