"""What single persons risk: against data sets that really lack them, recounted and trained from the start."""

import json
import math
import shutil

import honest_runs
import numpy as np
import pytest
from commands import call
from test_pair import both, least

from pate_jax import accounting, ensemble
from pate_jax.accounting.exact import pair
from pate_jax.audit.attacks import removals, risk
from pate_jax.audit.attacks.removals import Removals
from pate_jax.crowd import tables
from pate_jax.crowd.voters import agreeing
from pate_jax.data import partition
from pate_jax.errors import PateError
from pate_jax.runs import inputs, ledger
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.crowds import steps
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.queries import asked_inputs
from pate_jax.student import spaces
from pate_jax.system import storage


@pytest.fixture
def teachers(tmp_path):
    """A copy of the run by teachers, by user."""
    return RunDirectory(shutil.copytree(honest_runs.whole(7).root, tmp_path / "run"))


@pytest.fixture(scope="module")
def assessed(tmp_path_factory):
    """The same with the risk of everybody, which nobody changes."""
    run = RunDirectory(shutil.copytree(honest_runs.whole(7).root, tmp_path_factory.mktemp("risk") / "run"))
    with run.writing():
        found = risk.assess(run, "all")
        risk.keep(found)
    return run, found


def contents(folder):
    """All files but the lock, which names the process that wrote last."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {path.relative_to(folder): path.read_bytes() for path in files}


def votes_without(opened, name):
    """The labels of all teachers of a data set that never had this user: divided and trained anew."""
    part = opened.dataset.private.take(opened.dataset.private.users != name)
    shards = partition.divide(part, opened.cut.number, key=opened.partition_key, by="user")
    preprocessing = opened.dataset.preprocessing
    trained = ensemble.fit(
        opened.net,
        preprocessing,
        part.inputs,
        part.labels,
        shards,
        key=opened.teacher_key,
        config=opened.teacher,
    )
    return ensemble.predict(opened.net, preprocessing, trained, asked_inputs(opened).inputs)


def test_a_persons_moved_votes_are_those_of_a_data_set_without_that_person(assessed):
    run, found = assessed
    made = Removals(inputs.open(run), run.risk)
    moved = dict(zip(made.rows, made.moves(list(made.rows)), strict=True))
    most = max(moved, key=lambda name: len(moved[name].queries))
    none = min(moved, key=lambda name: len(moved[name].queries))
    for name in (most, none):
        again, expected = votes_without(made.inputs, name), made.labels.copy()
        teacher = made.teacher_of[made.rows[name][0]]
        expected[teacher, moved[name].queries] = moved[name].after
        np.testing.assert_array_equal(again, expected)  # bit for bit, and no other teacher's label moves
        assert (made.labels[teacher, moved[name].queries] == moved[name].before).all()
    assert len(moved[most].queries) > 0
    names = found.names.tolist()
    assert sorted(names) == sorted(moved) and found.everybody == 40
    assert found.moved[names.index(most)] == len(moved[most].queries)


def test_the_figures_of_a_run_are_those_of_all_outcomes_with_and_without_a_person(assessed):
    run, found = assessed
    made = Removals(inputs.open(run), run.risk)
    moved = made.moves(found.names.tolist())
    few = [row for row, one in enumerate(moved) if 1 <= len(one.queries) <= 4][:3]
    assert few
    for row in few:
        at = moved[row].queries
        local = moved[row]._replace(queries=np.arange(len(at)))
        p, q = both(run.record.read().mechanism, made.votes.votes[at], local)
        exact = max(least(p, q, found.delta), least(q, p, found.delta))
        assert exact * (1 - 1e-6) <= found.exposure.epsilon[row] <= exact * 1.002
        assert found.exposure.variation[row] == pytest.approx(np.abs(p - q).sum() / 2, rel=1e-4)


def test_nobody_risks_more_than_the_run_promises(assessed):
    run, found = assessed
    statement = accounting.Statement.from_dict(storage.read_json(run.statement, "statement"))
    assert 0 < found.exposure.epsilon.max() <= statement.figures[statement.smallest].epsilon
    assert found.promised["published"] == statement.headline.epsilon
    beyond = risk.Risk(**{**vars(found), "promised": {"published": found.exposure.epsilon.max() / 2}})
    with pytest.raises(PateError, match="mistake of this package"):
        risk.refuse_more_than_promised(beyond)


def recounted(run):
    """Of every voter of a crowd's run: the squares by which all that was released moves, table by table."""
    crowd = crowd_inputs.opened(run)
    names = partition.units_of(crowd.dataset.private, crowd.choice.by)
    everybody, held = sorted(set(names.tolist())), crowd.held_out
    some = [everybody[0], everybody[-1], *sorted(set(names[held].tolist()))[:2]]
    shown = steps.shown(run)
    for name in some:
        total = 1 / shown.numbers[0].event.sigma ** 2
        for line in shown.tables:
            here = crowd.at(steps.step_of(line))
            kept = names[~held] != name
            whole = tables.table(here.plan, here.people)
            rest = tables.table(here.plan, here.people.take(np.flatnonzero(kept)))
            total += int(((whole - rest) ** 2).sum()) / line.event.sigma**2
        for line in shown.scores:
            judges, kept = crowd.judges, names[held] != name
            rule = lambda seen: spaces.labels(crowd.scored, seen)  # noqa: E731
            off = agreeing(judges, rule) - agreeing(judges.take(kept), rule)
            total += off**2 / line.event.sigma**2
        yield name, math.sqrt(total)


@pytest.mark.parametrize("by", ["record", "user"])
@pytest.mark.parametrize("voters", ["neighbours", "sums"])
def test_a_voters_shift_is_what_a_recount_without_it_lacks(voters, by):
    run = honest_runs.crowd(voters, by)
    found = removals.shifts_of(crowd_inputs.opened(run))
    for name, exact in recounted(run):
        assert found.removed[found.names.tolist().index(name)] == pytest.approx(exact, rel=1e-12)
    lines = list(ledger.releases(run.ledger))
    most = {
        change: math.sqrt(sum(line.event.squared_shift(change) / line.event.sigma**2 for line in lines))
        for change in ("joined", "changed")
    }
    assert (found.removed <= most["joined"] * (1 + 1e-12)).all()
    assert (found.changed <= most["changed"] * (1 + 1e-12)).all()
    assert len(found.names) == (80 if by == "record" else 40)


@pytest.mark.parametrize("by", ["record", "user"])
def test_a_voter_moves_the_table_of_every_step(by):
    run = honest_runs.in_steps(by)
    found = removals.shifts_of(crowd_inputs.opened(run))
    for name, exact in recounted(run):
        assert found.removed[found.names.tolist().index(name)] == pytest.approx(exact, rel=1e-12)


def test_a_changed_voters_bound_holds_for_what_it_may_become():
    """Exchange each of some voters' contents for another record's: no shift is longer than the bound."""
    for voters in ("neighbours", "sums"):
        crowd = crowd_inputs.opened(honest_runs.crowd(voters))
        found, here = removals.shifts_of(crowd), crowd.at(1)
        names, people = crowd.dataset.private.ids, here.people
        line = steps.shown(crowd.run).tables[0]
        for row, other in ((0, 41), (7, 3), (20, 66)):
            own, new = (tables.table(here.plan, people.take(np.array([one]))) for one in (row, other))
            moved = math.sqrt(int(((own - new) ** 2).sum())) / line.event.sigma
            assert moved <= found.changed[found.names.tolist().index(names[row])] * (1 + 1e-12)


@pytest.mark.parametrize("make", [lambda: honest_runs.whole(7), lambda: honest_runs.crowd("sums", "user")])
def test_the_command_writes_into_private_alone_and_says_that_it_is_sensitive(tmp_path, capsys, make):
    run = RunDirectory(shutil.copytree(make().root, tmp_path / "run"))
    before = contents(run.root)
    assert call("risk", run.root, "--people", "7") == 0
    page = capsys.readouterr().out
    assert page.startswith(risk.SENSITIVE)
    assert "patient-" not in page
    written = {path for path in contents(run.root) if before.get(path) != contents(run.root)[path]}
    assert written and all(path.parts[:2] == ("private", "risk") for path in written)
    body = storage.read_json(run.risk / "risk.json", "risk")
    assert (body["people"], body["of"], body["warning"]) == (7, 40, risk.SENSITIVE)
    assert sum(body["histogram"]["people"]) == 7 and len(body["most_exposed"]) == 7
    assert body["most_exposed"][0]["epsilon"] == body["epsilon"]["most"]
    assert (run.risk / "people.csv").read_text().count("patient-") == 7
    assert call("verify", run.root, "--json") == 0
    assert json.loads(capsys.readouterr().out)["failed"] == []


def test_a_stopped_command_goes_on_where_it_was(teachers, monkeypatch):
    with monkeypatch.context() as patch:
        honest_runs.stop_at_write(patch, 3)  # what it was made from, then a wave, then the next one
        patch.setattr(removals, "WAVE", 2)
        with pytest.raises(KeyboardInterrupt):
            risk.assess(teachers, "9")
    kept = contents(teachers.risk)
    assert len(kept) == 2
    trained = []
    real = Removals.without
    monkeypatch.setattr(
        Removals, "without", lambda self, wave: trained.extend(wave.values()) or real(self, wave)
    )
    found = risk.assess(teachers, "9")
    assert len(trained) == 9 - 2 and len(found.names) == 9
    trained.clear()
    larger = risk.assess(teachers, "12")
    assert len(trained) == 3 and set(found.names) < set(larger.names)
    places = [larger.names.tolist().index(name) for name in found.names]
    np.testing.assert_array_equal(larger.exposure.epsilon[places], found.exposure.epsilon)
    storage.write_json(teachers.risk / "made_from.json", "risk-made-from", {"labels": "x", "asked": "y"})
    with pytest.raises(PateError, match=r"belongs to other votes.*remove that folder"):
        risk.assess(teachers, "9")


def test_teachers_that_do_not_come_out_again_are_refused(teachers, monkeypatch):
    """On another machine rounding may move labels, which would be taken for a person's doing."""
    real = Removals._trained

    def otherwise(self, rows):
        return {teacher: (labels + 1) % 3 for teacher, labels in real(self, rows).items()}

    monkeypatch.setattr(Removals, "_trained", otherwise)
    with pytest.raises(PateError, match=r"18 of 18 queries otherwise than in the run.*the machine"):
        risk.assess(teachers, "1")


def test_people_are_named_by_a_list(tmp_path):
    path = tmp_path / "ids.csv"
    path.write_text('patient,age\n"bob",3\nann,4\nbob,3\n')
    assert risk.chosen_people(["ann", "bob", "eve"], str(path), key=b"k") == ["bob", "ann"]
    path.write_text("ann\nzoe\n")
    with pytest.raises(PateError, match=r"'zoe'.*as the private records have them"):
        risk.chosen_people(["ann", "bob"], str(path), key=b"k")
    path.write_text("\n")
    with pytest.raises(PateError, match="nobody"):
        risk.chosen_people(["ann", "bob"], str(path), key=b"k")
    for wanted, said in (
        ("0", "from 1 to the 2 people"),
        ("3", "or `all`"),
        ("nowhere.csv", "one id a line"),
    ):
        with pytest.raises(PateError, match=said):
            risk.chosen_people(["ann", "bob"], wanted, key=b"k")


def test_equal_and_infinite_figures_are_shown(assessed):
    """Every voter of neighbours risks the same, and where there is hardly any noise no epsilon is finite."""
    run = honest_runs.crowd("neighbours")
    same = risk.assess(run)
    assert same.histogram() == ([80], [same.exposure.epsilon[0]] * 2)
    assert " 80" in risk.terminal_page(same)
    _, found = assessed
    endless = found.exposure._replace(epsilon=np.where(np.arange(40) < 3, np.inf, found.exposure.epsilon))
    told = risk.Risk(**{**vars(found), "exposure": endless, "promised": {"published": np.inf}})
    assert told.to_dict()["epsilon"]["most"] is None and sum(told.histogram()[0]) == 37
    assert json.loads(json.dumps(told.to_dict(), allow_nan=False))["promised_to_everybody"] == {
        "published": None
    }
    assert "inf" in risk.terminal_page(told)


def test_a_run_from_votes_alone_knows_nobody():
    with pytest.raises(PateError, match=r"made from votes alone.*a run from records"):
        risk.assess(honest_runs.elsewhere())


@pytest.mark.parametrize("command", ["risk", "attack"])
def test_a_folder_without_a_run_is_refused_and_stays_as_it_is(tmp_path, capsys, command):
    assert call(command, tmp_path / "nowhere") == 2
    assert "run `pate run` first" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


def test_the_drawn_answers_tell_what_the_figure_says():
    """The real sampler: how often the best guess of one answer is right, among 200,000 draws of each."""
    import jax

    from pate_jax import aggregate
    from pate_jax.mechanisms import DiscreteGaussianMax

    mechanism, draws = DiscreteGaussianMax(2.0), 100_000
    counts, other = np.array([4, 3, 1]), np.array([3, 3, 2])
    moved = pair.Moves(np.array([0]), np.array([0]), np.array([2]))
    said = pair.of_votes(mechanism, counts[None], [moved], 1e-5).variation[0]
    shares = []
    for place, each in enumerate((counts, other)):
        found = aggregate.answer(mechanism, np.tile(each, (draws, 1)), key=jax.random.key(place))
        shares.append(np.bincount(np.asarray(found.labels), minlength=3) / draws)
    drawn = np.abs(shares[0] - shares[1]).sum() / 2
    assert abs(drawn - said) < 4 * math.sqrt(0.5 / draws)
    assert said > 10 * math.sqrt(0.5 / draws)
