"""The attacks find nothing in honest code, come close to what is exact, and find each broken twin."""

import itertools
import json
import shutil
import typing
from dataclasses import replace

import honest_runs
import numpy as np
import pytest
from commands import call
from scipy import stats
from test_pair import least
from test_risk import contents

from pate_jax import aggregate
from pate_jax.aggregate import noise
from pate_jax.audit.attacks import every, mechanism, poisoning
from pate_jax.audit.attacks.poisoned_teachers import PoisonedTeachers
from pate_jax.cli.risk import attack
from pate_jax.errors import PateError
from pate_jax.mechanisms import ConfidentDiscreteGaussian, DiscreteGaussianMax, LNMax
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts, TeacherSums, TeacherVotes
from pate_jax.runs.directory import RunDirectory
from pate_jax.system import storage

DRAWS = 40_000
ANSWERING = DiscreteGaussianMax(1.0), ConfidentDiscreteGaussian(8.0, 1.0, 1.0), LNMax(1.0)
TABLES = (
    NeighbourCounts(80, 10, 1, 2.5),
    ClassSums(3, 9, 100, 200.0),
    TeacherSums(50, 9, 100, 150.0),
    TeacherVotes(50, 2, 8, 2, 3.0),
)


def seeded(first=0):
    """Keys that are the same in every run of the tests."""
    numbers = itertools.count(first)
    return lambda: noise.seeded_key(next(numbers))


def audited(one):
    if one in TABLES:
        return mechanism.of_table(one, key=seeded(), draws=4 * DRAWS)
    return mechanism.of_answers(one, 12, 3, key=seeded(), draws=DRAWS)


@pytest.mark.parametrize("one", [*ANSWERING, *TABLES], ids=lambda one: type(one).__name__)
def test_draws_of_honest_noise_come_close_to_the_exact_epsilon_and_not_above(one):
    found = audited(one)
    assert 0.9 * found.exact <= found.lower <= found.exact
    assert found.lower < found.estimate < 1.1 * found.exact


@pytest.mark.parametrize("share", [0.0, 0.1, 2 / 3])
@pytest.mark.parametrize("one", [ANSWERING[0], TABLES[1]], ids=lambda one: type(one).__name__)
def test_less_noise_than_is_charged_for_is_found(monkeypatch, one, share):
    """No noise at all, a tenth of it, and two thirds."""
    name = "noise" if isinstance(one, DiscreteGaussianMax) else None
    sigma = max(one.sigma * share, 1.0 if name is None else 1e-3)  # the least that can be described
    if name is None:
        real = mechanism.noisy_table
        patched = lambda release, *given, **more: real(replace(release, sigma=sigma), *given, **more)  # noqa: E731
        monkeypatch.setattr(mechanism, "noisy_table", patched)
    else:
        real = aggregate.answer
        patched = lambda asked, *given, **more: real(replace(asked, sigma=sigma), *given, **more)  # noqa: E731
        monkeypatch.setattr(aggregate, "answer", patched)
    found = audited(one)
    assert not found.holds and "publish nothing" in found.sentence()


def test_the_bound_is_that_of_clopper_and_pearson_and_covers():
    left, right, draws, delta = np.array([300, 5200]), np.array([200, 5000]), 10_000, 1e-3
    doubt = mechanism.DOUBT / 8
    low, high = stats.beta.ppf(doubt, left, draws - left + 1), stats.beta.isf(doubt, right + 1, draws - right)
    lowest = stats.beta.ppf(doubt, draws - right, right + 1)
    highest = stats.beta.isf(doubt, draws - left + 1, left)
    expected = max(*np.log((low - delta) / high), *np.log((lowest - delta) / highest))
    assert mechanism.bounds(left, right, draws, delta)[1] == pytest.approx(expected, rel=1e-9)
    assert mechanism.bounds(np.array([0, draws]), np.array([0, draws]), draws, delta) == (0.0, 0.0)
    random, p, q = np.random.default_rng(3), np.array([0.1, 0.3, 0.6]), np.array([0.05, 0.25, 0.7])
    exact = max(least(p, q, delta), least(q, p, delta))
    above = 0
    for _ in range(300):
        hits = (np.cumsum(random.multinomial(2000, law))[:-1] for law in (p, q))
        above += mechanism.bounds(*hits, 2000, delta)[1] > exact
    assert above <= 300 * mechanism.DOUBT


def test_a_plurality_withstands_so_many_bad_teachers_and_no_more():
    """All ways in which some of the teachers may change their votes."""
    for counts in ([5, 2, 0], [3, 3, 1], [4, 2, 2], [6, 1, 1], [4, 3, 0]):
        most = int(poisoning.withstood(np.array([counts]))[0])
        labels = np.repeat(np.arange(3), counts)
        leaders = {int(np.argmax(counts))}
        for bad in (most, most + 1):
            if bad < 0:
                continue
            flipped = any(
                set(np.flatnonzero(after == after.max()).tolist()) != leaders
                for who in itertools.combinations(range(len(labels)), bad)
                for said in itertools.product(range(3), repeat=bad)
                for after in [_counted(labels, who, said)]
            )
            assert flipped == (bad > most)


def _counted(labels, who, said):
    changed = labels.copy()
    changed[list(who)] = said
    return np.bincount(changed, minlength=3)


def test_the_command_keeps_its_results_and_fails_where_noise_is_missing(tmp_path, capsys, monkeypatch):
    run = RunDirectory(shutil.copytree(honest_runs.whole(7).root, tmp_path / "run"))
    before = contents(run.root)
    few = {
        name: every.ATTACKS[name] for name in ("mechanism", "poisoning")
    }  # the others have tests of their own
    monkeypatch.setattr(every, "ATTACKS", few)
    honest = mechanism.of_answers
    known = lambda *given, **more: honest(*given, **{**more, "key": seeded()})  # noqa: E731
    monkeypatch.setattr(mechanism, "of_answers", known)
    monkeypatch.setattr(PoisonedTeachers, "trials", lambda self: iter(()))  # test_poisoning.py makes them
    assert call("attack", run.root, "--draws", "20000", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["mechanism"][0]["holds"] and told["poisoning"]["queries"] == honest_runs.QUERIES
    after = contents(run.root)
    new = [path.as_posix() for path in after if before.get(path) != after[path]]
    assert sorted(new) == ["private/attacks.json", "private/report.html"]
    assert "Sensitive: computed from the private records" in run.report.read_text()
    assert storage.read_json(run.attacks, "attacks") == told
    real = aggregate.answer
    quiet = lambda asked, *given, **more: real(replace(asked, sigma=0.2), *given, **more)  # noqa: E731
    monkeypatch.setattr(aggregate, "answer", quiet)
    assert call("attack", run.root, "--only", "mechanism", "--draws", "20000") == 1
    assert "HIDES LESS THAN IS SAID" in capsys.readouterr().out


def test_the_command_names_all_attacks_and_no_other():
    flag = typing.get_type_hints(attack)["only"]
    assert {*typing.get_args(typing.get_args(flag)[0])} == {*every.ATTACKS}
    with pytest.raises(PateError, match="'luck' is not an attack; choose one of mechanism, "):
        every.attacked(honest_runs.crowd("sums"), "luck")


class Said(typing.NamedTuple):
    """A finding of so many lines."""

    holds: bool
    lines: int

    def text(self):
        return "\n".join(
            ["poisoning:", *(f"  line {number} " + "word " * 80 for number in range(self.lines))]
        )

    def to_dict(self):
        return {}


def test_the_short_answer_fits_a_screen_and_hides_no_alarm():
    honest = every.Attacked({name: Said(True, 40) for name in every.ATTACKS}, ("twin",))
    told = honest.brief().splitlines()
    assert len(told) <= 25 and max(map(len, told)) <= 172 and "All hold" in told[-1] and "--all" in told[-1]
    assert "266 more lines" in told[-1] and len(honest.text().splitlines()) == 7 * 41 + 1
    broken = every.Attacked({"canaries": Said(True, 40), "recovery": Said(False, 40)})
    assert Said(False, 40).text() in broken.brief() and "publish nothing" in broken.brief()
