"""Students of sums, compared by voters who are held out: what it costs, who judges, and what follows."""

import itertools
import math
import shutil
from dataclasses import replace

import honest_runs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate_jax import accounting
from pate_jax.accounting.exact import counts
from pate_jax.aggregate import seeded_key
from pate_jax.aggregate.noise import noisy_table
from pate_jax.audit import verify
from pate_jax.audit.attacks import removals
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, Comparison, HeadCount
from pate_jax.runs import chain, ledger, pipeline
from pate_jax.runs.crowds import answers, inputs, processes, release, steps, students
from pate_jax.runs.crowds import stages as crowd_stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import CrowdChoice
from pate_jax.student import Auto, Linear, Ridge, Student, spaces
from pate_jax.system import storage

pytestmark = pytest.mark.usefixtures("without_pictures")

RULE = students.rivals
METHODS = ["linear", "ridge", "supervised"]


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Tables in place of images, and quick students in place of those that take minutes."""
    monkeypatch.setattr(students, "rivals", honest_runs.rivals)


@pytest.mark.parametrize("by", ["record", "user"])
def test_a_run_that_compares_students_stands_every_check(by):
    run = honest_runs.compared(by)
    names = [line.event.name for line in ledger.releases(run.ledger)]
    assert names == ["headcount", "sums", "comparison"]
    found = verify.of_run(run, deep=True)
    assert found.of("failed") == [] and found.of("unchecked") == []
    assert verify.of_release(run.release).of("failed") == []
    passed = " ".join(found.of("passed"))
    assert "held-out voters give the comparison of students again" in passed
    assert "the compared student ridge follows from public inputs" in passed
    assert "as the comparison of the held-out voters says" in passed
    statement = accounting.Statement.from_dict(storage.read_json(run.public_statement, "statement"))
    assert 7.999 < statement.headline.epsilon <= 8.0
    assert "how many held-out voters agree with each of 3 students" in statement.charged


def test_students_are_compared_after_the_last_step(tmp_path):
    pipeline.run(replace(honest_runs.comparing(tmp_path), steps=3))
    run = RunDirectory(tmp_path)
    names = [line.event.name for line in ledger.releases(run.ledger)]
    assert names == ["headcount", "sums", "sums", "sums", "comparison"]
    found = verify.of_run(run, deep=True)
    assert found.of("failed") == [] and found.of("unchecked") == []
    statement = accounting.Statement.from_dict(storage.read_json(run.public_statement, "statement"))
    assert 7.999 < statement.headline.epsilon <= 8.0


def test_pages_and_results_tell_of_it():
    run = honest_runs.compared(seed=3)  # fresh noise between two students would favour the other one some day
    told = storage.read_json(run.results, "results")
    found = told["compared"]
    assert [*found["leads"]] == METHODS and found["voters"] == steps.held_out(run)
    assert told["method"] == students.taken(run) == "ridge"
    assert found["leads"]["ridge"] == max(found["leads"].values()) > found["noise"]
    (line,) = steps.shown(run).comparisons
    cells = ledger.unpack_table(line.values, line.event.shape)[0]
    assert found["leads"]["ridge"] * found["voters"] == pytest.approx((cells[1] - cells[0]) / 3)
    assert found["noise"] * found["voters"] == pytest.approx(line.event.between_two)
    page = run.public_report.read_text()
    assert (
        f"Of about {found['voters']} held-out voters" in page and "voters, one in ten, were held out" in page
    )


def squared(release, doing, change):
    """By hand: how far a voter of one kind moves a release, squared."""
    if isinstance(release, HeadCount):
        return 1 if change == "joined" else 0
    if isinstance(release, Comparison):
        whole = 24 if change == "changed" else 6
        return whole if doing in ("judges", "moves") else 0
    whole = release.length**2 * (4 if change == "changed" else 1)
    return whole if doing in ("votes", "moves") else 0


@given(st.floats(0.02, 6.0), st.sampled_from(["sums", "neighbours"]))
def test_whatever_a_voter_does_the_figure_covers_it(epsilon, began_as):
    """Every line of the table in docs/proofs/crowds.md; the number may have been told for neighbours."""
    mu = counts.mu_for(epsilon, 1e-5)
    table = ClassSums(3, 4, 100, max(1.0, 2 * 100 / mu) * (1 + 1e-6))
    released = [
        counts.headcount_for(mu, began_as),
        table,
        counts.comparison_for(mu, 3),
    ]
    assert counts.worst(released, 1e-5) <= epsilon
    for doing, change in itertools.product(("votes", "judges"), ("changed", "joined")):
        total = sum(squared(one, doing, change) / one.sigma**2 for one in released)
        assert total <= mu**2 * (1 + 1e-9)
    moved = sum(squared(one, "moves", "joined") / one.sigma**2 for one in released[1:])
    assert moved <= mu**2 * (1 + 1e-9)


def test_a_comparison_is_charged_to_those_who_move_it():
    """Noise that is too small shows in the figure; one comparison more does too."""
    table, mu = ClassSums(classes=3, directions=4, length=100, sigma=2000.0), 0.1
    number, enough = counts.headcount_for(mu, "sums"), counts.comparison_for(mu, 3)
    honest = counts.worst([number, table, enough], 1e-5)
    assert honest == counts.epsilon([table], 1e-5)
    loud = Comparison(3, enough.sigma / 4)
    assert counts.worst([number, table, loud], 1e-5) == pytest.approx(counts.epsilon([loud], 1e-5))
    assert counts.worst([number, table, loud], 1e-5) > 3 * honest
    twice = counts.worst([number, table, enough, enough], 1e-5)
    assert twice == pytest.approx(counts.epsilon([enough, enough], 1e-5)) and twice > 1.3 * honest


@pytest.mark.parametrize("students", [2, 3, 4, 5])
def test_no_voter_moves_a_comparison_further_than_it_is_charged_for(students):
    """Brute force over all that a voter may say of the students, before and after."""
    says = [np.array(one) for one in itertools.product((0, 1), repeat=students)]
    adds = [students * one - one.sum() for one in says]
    release = Comparison(students, 2.0)
    assert max(int((one**2).sum()) for one in adds) == release.squared_shift("joined")
    assert max(int(((one - other) ** 2).sum()) for one in adds for other in adds) == release.squared_shift(
        "changed"
    )


def test_two_numbers_of_two_students_would_need_twice_the_noise():
    """A score for each student moves both numbers, and their difference has the noise of both."""
    mu = 0.1
    each = math.sqrt(2 / (mu**2 / 4))  # a voter that is added moves both scores
    assert math.sqrt(2) * each == pytest.approx(2 * counts.comparison_for(mu, 2).between_two, rel=1e-5)


def other_content(row, out, **columns):
    """The private records with another content in one row."""
    with np.load(honest_runs.most().private, allow_pickle=False) as file:
        arrays = {name: file[name].copy() for name in file.files}
    for name, value in columns.items():
        arrays[name][row] = value
    np.savez(out, **arrays)
    return out


def on(run, private):
    """The crowd of a run, on other private records."""
    crowd = inputs.opened(run)
    return replace(crowd, inputs=replace(crowd.inputs, choice=replace(crowd.inputs.choice, private=private)))


def test_a_changed_record_moves_the_table_or_the_comparison_and_never_both(tmp_path):
    run = honest_runs.compared()
    crowd = inputs.opened(run)
    held_out, every = crowd.held_out, students.every(crowd)
    assert 40 < held_out.sum() < 130 and crowd.judging == held_out.sum()
    table, compared = release.counted(crowd), students.agreement(crowd, every)
    assert np.array_equal(compared, students.load_comparison(run))
    says = [spaces.labels(each, crowd.dataset.private.inputs) == crowd.everybody.labels for each in every]
    right = np.array([each[held_out].sum() for each in says])
    assert compared.tolist() == [(3 * right - right.sum()).tolist()]
    for name, row in (("votes", np.flatnonzero(~held_out)[3]), ("judges", np.flatnonzero(held_out)[3])):
        label = (crowd.everybody.labels[row] + 1) % 3
        changed = on(
            run,
            other_content(row, tmp_path / f"{name}.npz", inputs=np.full(4, 9.0, np.float32), labels=label),
        )
        assert np.array_equal(changed.held_out, held_out)
        moved = int(((release.counted(changed) - table) ** 2).sum())
        step = int(((students.agreement(changed, every) - compared) ** 2).sum())
        if name == "votes":
            assert 0 < moved <= crowd.plan.release.squared_shift("changed") and step == 0
        else:
            assert moved == 0 and step <= Comparison(3, 2.0).squared_shift("changed")


def test_the_risk_of_single_voters_knows_the_comparison():
    """A voter who judges moves the number of voters and its own cells; by brute force."""
    run = honest_runs.compared()
    crowd, (number, _, compared) = inputs.opened(run), ledger.releases(run.ledger)
    says = [spaces.labels(one, crowd.dataset.private.inputs) for one in students.every(crowd)]
    agree = np.array([one == crowd.everybody.labels for one in says]).T.astype(int)
    everything = np.array(list(itertools.product((0, 1), repeat=3)))
    found = removals.shifts_of(crowd)
    places = {name: place for place, name in enumerate(found.names.tolist())}
    ids = crowd.dataset.private.ids.tolist()
    for row in np.flatnonzero(crowd.held_out)[:40]:
        own, others = 3 * agree[row] - agree[row].sum(), 3 * everything - everything.sum(1, keepdims=True)
        gone = 1 / number.event.sigma**2 + (own**2).sum() / compared.event.sigma**2
        furthest = ((others - own) ** 2).sum(1).max() / compared.event.sigma**2
        assert found.removed[places[ids[row]]] ** 2 == pytest.approx(gone)
        assert found.changed[places[ids[row]]] ** 2 == pytest.approx(furthest)
    mu = counts.mu_for(8.0, 1e-5)
    assert max(found.removed.max(), found.changed.max()) <= mu


def test_what_each_student_says_of_a_record_depends_on_that_record_alone():
    run = honest_runs.compared()
    seen = inputs.opened(run).dataset.private.inputs
    order = np.random.default_rng(1).permutation(len(seen))
    for method in METHODS:
        student = Student.load(run.compared(method))
        together = spaces.labels(student, seen)
        np.testing.assert_array_equal(spaces.labels(student, seen[order]), together[order])
        assert [int(spaces.labels(student, seen[row : row + 1])[0]) for row in (0, 511, 799)] == [
            *together[[0, 511, 799]]
        ]


def test_the_noise_is_that_which_is_charged():
    """Over many keys: sigma is the one in the ledger, not two thirds or three halves of it."""
    wanted, exact = 30.0, np.array([[-7, 5, 2]])
    keys = [seeded_key(seed) for seed in range(200)]
    noisy = [noisy_table(Comparison(3, wanted), exact, key=key).values for key in keys]
    drawn = (np.concatenate(noisy) - exact).ravel()
    assert abs(np.mean(drawn)) < 4 * wanted / math.sqrt(600)
    assert 0.85 * wanted < np.std(drawn) < 1.15 * wanted


@pytest.mark.parametrize(
    ("flags", "config"),
    [
        ({}, Linear()),  # the user names a method
        ({}, Ridge()),
        ({"encoder": "numpy:ravel"}, Auto()),
    ],
)
def test_nobody_is_held_out_where_nothing_is_compared(tmp_path, flags, config):
    choice = CrowdChoice("sums", **flags)
    crowd = inputs.made(RunDirectory(tmp_path / "run"), honest_runs.images(tmp_path), choice)
    assert RULE(config, crowd) == [] != RULE(Auto(), replace(crowd, choice=CrowdChoice("sums")))


def test_several_processes_compare_nothing_and_do_not_go_on_with_a_comparison(tmp_path, monkeypatch):
    """Who is held out follows from a secret that the first process alone has."""
    crowd = inputs.made(RunDirectory(tmp_path / "run"), honest_runs.images(tmp_path), CrowdChoice("sums"))
    begun_with = inputs.opened(honest_runs.compared())
    monkeypatch.setattr(processes.devices, "processes", lambda: 2)
    assert RULE(Auto(), crowd) == []
    with pytest.raises(PateError, match="holds out voters to compare students, and was begun in one"):
        processes._open(begun_with)


def test_tables_and_images_of_this_package_are_not_compared(tmp_path):
    run, choice = RunDirectory(tmp_path / "run"), CrowdChoice("sums")
    assert RULE(Auto(), inputs.made(run, honest_runs.table(), choice)) == []
    drawn = replace(honest_runs.table(), dataset="strokes", private=None, public=None, test=None, records=20)
    assert RULE(Auto(), inputs.made(run, drawn, choice)) == []
    given = RULE(Auto(steps=7), inputs.made(run, honest_runs.images(tmp_path), choice))
    assert [(one.method, one.steps) for one in given] == [(method, 7) for method in students.RIVALS]


def test_too_few_voters_for_the_noise_all_vote(tmp_path):
    """At epsilon 0.5 the noise is 16, and 80 voters could not tell a point from none."""
    run = RunDirectory(tmp_path)
    crowd = begun(tmp_path, replace(honest_runs.comparing(tmp_path), epsilon=0.5))
    assert not inputs.compares(run, crowd.choice) and students.methods(run) == METHODS
    assert [line.event.name for line in ledger.releases(run.ledger)] == ["headcount", "sums"]
    assert "held_out" not in storage.read_json(run.certificate, "certificate")
    found, asked = answers.given(crowd)
    assert students.chosen(Auto(), crowd, found, asked).config == Linear()
    assert verify.of_run(run).of("failed") == []


def noise_of(run):
    return [(line.noise, line.values) for line in ledger.releases(run.ledger)]


def begun(folder, config):
    """A run up to its statement."""
    run = RunDirectory(folder)
    with run.writing():
        crowd = crowd_stages.begin(run, config.data, config.crowd, config.student)
        release.release(crowd)
        crowd_stages.account(run, 1e-5)
    return crowd


@pytest.mark.parametrize("kill", [8, 14, 18, 21])
def test_a_run_that_is_stopped_goes_on_with_the_same_noise(tmp_path, monkeypatch, kill):
    honest = honest_runs.compared("record", 5)
    wanted, run = honest_runs.comparing(tmp_path, seed=5), RunDirectory(tmp_path)
    with monkeypatch.context() as patch:
        written = honest_runs.stop_at_write(patch, kill)
        try:
            begun(tmp_path, wanted)
        except KeyboardInterrupt:
            with pytest.raises(PateError):
                crowd_stages.account(run, 1e-5)
    assert written[0] >= kill
    begun(tmp_path, wanted)
    assert noise_of(run) == noise_of(honest)


@pytest.mark.long
def test_images_are_compared_by_the_rule_as_it_is(tmp_path, monkeypatch, small_nets):
    monkeypatch.setattr(students, "rivals", RULE)
    data = honest_runs.images(tmp_path)
    pipeline.run(replace(honest_runs.comparing(tmp_path / "run"), data=data, student=Auto(steps=5)))
    run = RunDirectory(tmp_path / "run")
    told = storage.read_json(run.results, "results")
    assert [*told["compared"]["leads"]] == ["linear", *students.RIVALS] and told["space"]["kind"] == "patches"
    found = verify.of_run(run, deep=True)
    assert found.of("failed") == [] and found.of("unchecked") == []


def test_a_named_method_after_the_comparison_gives_no_second_look(tmp_path):
    """What was released stays, nothing more is, and the student is the one that was asked for."""
    wanted = honest_runs.comparing(tmp_path)
    crowd, run = begun(tmp_path, wanted), RunDirectory(tmp_path)
    before = noise_of(run)
    pipeline.run(replace(wanted, student=Ridge()))
    assert noise_of(run) == before and len(before) == 3
    assert storage.read_json(run.results, "results")["method"] == "ridge"
    assert verify.of_run(run).of("failed") == []
    with pytest.raises(PateError, match="was made with student setting"):
        pipeline.run(wanted)
    assert crowd.judged


def test_a_run_that_was_begun_with_a_named_method_is_never_compared(tmp_path):
    wanted = honest_runs.comparing(tmp_path)
    begun(tmp_path, replace(wanted, student=Linear()))
    pipeline.run(wanted)
    run = RunDirectory(tmp_path)
    assert len(list(ledger.releases(run.ledger))) == 2 and not run.comparison.exists()
    assert storage.read_json(run.results, "results")["method"] == "linear"


def test_other_students_than_the_compared_ones_are_refused(tmp_path):
    shutil.copytree(honest_runs.compared().root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    shutil.rmtree(run.compared("ridge"))
    shutil.copytree(run.compared("linear"), run.compared("ridge"))
    with pytest.raises(PateError, match=r"was asked on something else than .*compared"):
        pipeline.run(honest_runs.comparing(run.root))
    assert any("was asked on" in one or "asked on" in one for one in verify.of_run(run).of("failed"))


def test_a_line_after_a_comparison_is_refused(tmp_path):
    run = RunDirectory(tmp_path)
    lines = list(ledger.releases(honest_runs.compared().ledger))
    with chain.Writer(run.ledger) as book:
        for line in [*lines, lines[1]._replace(batch=4)]:
            ledger.append(book, line)
    with pytest.raises(PateError, match="does not come there"):
        steps.shown(run)
