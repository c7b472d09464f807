"""Teachers that are planned by a rehearsal: what it reads, its rules, and the run that follows."""

from dataclasses import replace
from types import SimpleNamespace

import honest_runs
import jax.numpy as jnp
import numpy as np
import pytest

from pate_jax import accounting, data
from pate_jax.accounting import planning
from pate_jax.audit import verify
from pate_jax.crowd.rehearsal import Expected
from pate_jax.data import Part
from pate_jax.ensemble import TeacherConfig, ridge
from pate_jax.errors import PateError
from pate_jax.models import clusters
from pate_jax.runs import pipeline, teacher_plan, teacher_rehearsal, teacher_votes
from pate_jax.runs.crowds import forecast
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.record import PLANNED
from pate_jax.runs.settings import TEACHERS, DataChoice, PartitionChoice, RunConfig
from pate_jax.runs.teacher_rehearsal import Tried
from pate_jax.student import Ridge
from pate_jax.system import storage

pytestmark = pytest.mark.usefixtures("without_pictures")
CLASSES = 3


def heaps(count, seed, spread=1.0):
    """Inputs of three heaps in four columns, and which heap each is of."""
    random, centres = np.random.default_rng(seed), np.eye(3, 4) * 3
    labels = random.integers(0, CLASSES, count).astype(np.int32)
    return (centres[labels] + spread * random.normal(size=(count, 4))).astype(np.float32), labels


def files(folder, records=900, seed=1, public=240, turned=False):
    """A user's own files; `turned` turns the private inputs and labels around."""
    folder.mkdir()
    for place, (name, count) in enumerate((("private", records), ("public", public), ("test", 60))):
        inputs, labels = heaps(count, 10 * seed + place if name == "private" else place)
        arrays = {"inputs": inputs, "ids": np.array([f"{name}-{7 * row % count}" for row in range(count)])}
        if name == "private" and turned:
            inputs, labels = -inputs, labels[::-1]
        arrays |= {"inputs": inputs} if name == "public" else {"inputs": inputs, "labels": labels}
        np.savez(folder / f"{name}.npz", **arrays)
    return DataChoice(**{name: folder / f"{name}.npz" for name in ("private", "public", "test")}, classes=3)


def wished(data, out, **changes):
    return RunConfig(
        **{"data": data, "out": out, "epsilon": 2.0, "register": honest_runs.UNCOUNTED} | changes
    )


def planned(data, out, **changes):
    run = RunDirectory(out)
    made = teacher_plan.settled(run, wished(data, out, **changes))
    return made, run.record.read().of(PLANNED)


@pytest.fixture(scope="module")
def rehearsed():
    """A rehearsal on 600 public inputs with their labels, for any records and epsilon."""
    inputs, labels = heaps(600, 5)
    entries = np.c_[inputs / 4, np.full(len(inputs), 0.2)].astype(np.float32)
    dataset = SimpleNamespace(
        public=Part(inputs, labels, np.arange(600).astype(str)), classes=CLASSES, kind="table"
    )

    def made(exact=False, **wish):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(teacher_rehearsal, "seen", lambda *_: entries)
            if not exact:  # the accountant takes seconds
                patch.setattr(planning, "calibrated", lambda rough, *_: (rough, 0.0))
            return teacher_rehearsal.rehearse(
                dataset, [labels], **{"records": 6000, "epsilon": 1.0, "delta": 1e-5} | wish
            )

    return made


def test_a_plan_for_another_epsilon_or_delta_is_not_gone_on_with(tmp_path):
    """A plan of whole histograms has no filter, so nothing else would hold a repeat to a smaller wish."""
    found = {"epsilon": 1.0, "delta": 1e-5, "mechanism": {"name": "gaussian-histogram", "sigma": 30.0}}
    run = RunDirectory(tmp_path / "run")
    run.record.agree(PLANNED, found)
    for wish in ({"epsilon": 0.1}, {"epsilon": 2.0}, {"epsilon": 1.0, "delta": 1e-6}):
        with pytest.raises(PateError, match="was planned for epsilon 1 at delta 1e-05, and now"):
            planned(DataChoice("strokes"), run.root, **wish)


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """The plan of a command without wishes."""
    folder = tmp_path_factory.mktemp("usual")
    return planned(files(folder / "data"), folder / "run")[1]


def plan_of_others(folder):
    """As many records by two digits, with other inputs and labels."""
    return planned(files(folder / "b", records=909, seed=2, turned=True), folder / "other")[1]


def test_contents_of_private_records_change_no_plan(usual, tmp_path):
    """Bit for bit the same plan."""
    assert plan_of_others(tmp_path) == usual and usual["records"] == 900


def test_a_plan_that_reads_private_labels_would_be_noticed(tmp_path, monkeypatch):
    real, kept = teacher_rehearsal.rehearse, []

    def leaking(dataset, labels, **wish):
        found = kept[0] if kept else real(dataset, labels, **wish)
        kept.append(found)
        return found._replace(option=replace(found.option, right=float(dataset.private.labels[:9].mean())))

    monkeypatch.setattr(teacher_rehearsal, "rehearse", leaking)
    assert planned(files(tmp_path / "a"), tmp_path / "one")[1] != plan_of_others(tmp_path)


def test_the_noise_is_the_accountants_for_the_wished_epsilon(rehearsed):
    option = rehearsed(exact=True, epsilon=1.0).option
    spent = planning.spends(option.mechanism, option.queries, option.teachers, CLASSES, 1e-5)
    assert 0.99 < spent <= 1.0 and option.epsilon == spent


def test_numbers_that_the_user_chose_are_kept(rehearsed):
    option = rehearsed(teachers=45, queries=33).option
    assert (option.teachers, option.shard, option.queries) == (45, 133, 33)


def test_a_smaller_epsilon_buys_fewer_answers_or_surer_votes(rehearsed):
    """Less may be spent: more teachers, fewer questions, or both."""
    dear, cheap = (rehearsed(epsilon=each).option for each in (8.0, 0.2))
    assert cheap.queries / cheap.teachers < dear.queries / dear.teachers
    assert cheap.mechanism.noise.scale > dear.mechanism.noise.scale


def test_shards_of_ten_records_are_taken_where_noise_is_large(rehearsed):
    assert rehearsed(records=2000, epsilon=0.1).option.shard <= 20


def test_whole_histograms_are_tried_and_their_noise_is_exact(rehearsed, monkeypatch):
    """Where they alone teach, they are taken, with the scale of mu = sqrt(2 queries) / sigma."""
    real = teacher_votes.told
    deaf = lambda counts, teachers, *, whole: real(counts, teachers, whole=True) * whole  # noqa: E731
    monkeypatch.setattr(teacher_votes, "told", deaf)
    option = rehearsed(exact=True, epsilon=1.0).option
    assert option.mechanism.releases_counts and 0.999 < option.epsilon <= 1.0
    assert np.isclose(np.sqrt(2 * option.queries) / option.mechanism.sigma, planning.mu(1.0, 1e-5), rtol=1e-4)


def test_at_most_half_of_the_public_part_is_asked_about(rehearsed):
    assert rehearsed(epsilon=50.0, most_queries=90).option.queries <= 45


def test_nothing_is_planned_where_noise_drowns_all_votes(rehearsed):
    with pytest.raises(teacher_rehearsal.NoUse, match="buys no useful answers of teachers"):
        rehearsed(records=200, epsilon=0.01)


TRIED = Tried(100, 30, 80, np.array([0.9, 0.7]), np.array([[0.8, 0.6]]))


def test_the_best_student_decides_and_not_the_number_of_answers_or_their_accuracy():
    many = TRIED._replace(queries=500, answers_right=np.array([0.8, 0.6]), right=np.array([[0.9, 0.6]]))
    few = TRIED._replace(queries=20, answers_right=np.array([1.0, 0.9]), right=np.array([[0.5, 0.5]]))
    assert teacher_rehearsal.chosen([TRIED, many, few], 2) == many


def test_few_teachers_that_stand_for_many_give_answers_as_right_as_many_do():
    """By brute force: of 100 teachers, each right in half of the cases, and of 25 that stand for them."""
    random, shape = np.random.default_rng(0), (2, 1, 20_000)
    chances, rows = np.array([0.45, 0.35, 0.2]), np.arange(shape[2])
    noise = random.normal(size=(*shape, 3)).astype(np.float32)
    told = []
    for stood in (100, 25):
        votes = random.multinomial(stood, chances, size=shape[1:]) / stood
        found = teacher_votes.noisy(votes.astype(np.float32), stood, 100, rows, 12.0, noise)
        told.append((found.argmax(3) == 0).mean())
    as_drawn = (25 * 4 * votes + 12 * noise).argmax(3)  # with the noise of few teachers on top
    assert abs(told[0] - told[1]) < 0.6 * (told[0] - (as_drawn == 0).mean())


def test_teachers_of_a_rehearsal_are_those_of_a_run():
    random = np.random.default_rng(0)
    for records in (5, 30):
        inputs, targets = random.normal(size=(records, 9)), random.normal(size=(records, 2))
        ours = teacher_votes.ridge(inputs, targets, 0.1)
        theirs, _ = ridge.ridge(jnp.asarray(inputs), jnp.asarray(targets), 0.1)
        assert np.allclose(ours, theirs, atol=1e-3)


def test_ridge_stands_for_many_students_at_once():
    """Each student is the same as alone, and by the equations of the penalty that it chose."""
    random = np.random.default_rng(0)
    inputs, others = random.normal(size=(40, 5)), random.normal(size=(7, 5))
    told = np.eye(2)[random.integers(0, 2, (40, 3))]
    together = teacher_rehearsal.ridge(inputs, told, others)
    for place in range(3):
        alone = teacher_rehearsal.ridge(inputs, told[:, [place]], others)[:, 0]
        assert np.allclose(together[:, place], alone, atol=1e-5)
        middle = told[:, place].mean(0)
        solved = [
            others
            @ np.linalg.solve(inputs.T @ inputs + penalty * np.eye(5), inputs.T @ (told[:, place] - middle))
            + middle
            for penalty in teacher_rehearsal._PENALTIES
        ]
        assert min(np.abs(each - alone).max() for each in solved) < 1e-4


def test_one_answer_of_a_heap_is_carried_to_all_of_it():
    inputs, labels = heaps(900, 3, spread=0.4)
    known = clusters.graph(inputs)
    asked = np.array([np.flatnonzero(labels == each)[0] for each in range(CLASSES)])
    said = clusters.spread(known, asked, np.eye(CLASSES)[:, None, :], np.arange(900))
    assert (said[:, 0].argmax(1) == labels).mean() > 0.95


def test_what_the_user_chose_is_not_planned_anew(tmp_path):
    made, found = planned(
        files(tmp_path / "a"),
        tmp_path / "run",
        partition=PartitionChoice(teachers=30),
        queries=25,
        selection="random",
        min_distance=0.2,
        teacher=TeacherConfig(net="table", epochs=2),
    )
    config = made.config
    assert (config.partition.teachers, config.queries, config.selection) == (30, 25, "random")
    assert (config.min_distance, config.teacher.net, config.teacher.epochs) == (0.2, "table", 2)
    assert made.net is None and found["front"] is None


@pytest.mark.parametrize("given", [TEACHERS, None])
def test_the_usual_number_of_teachers_is_kept_where_the_user_gives_it(given, tmp_path, monkeypatch):
    def rehearse(*_, teachers, **__):
        assert teachers == given
        raise PateError("rehearsed")

    monkeypatch.setattr(teacher_rehearsal, "rehearse", rehearse)
    with pytest.raises(PateError, match="rehearsed"):
        planned(files(tmp_path / "a"), tmp_path / "run", partition=PartitionChoice(given))


def test_teachers_that_learn_step_by_step_get_shards_from_which_they_learn(tmp_path):
    made, found = planned(files(tmp_path / "a"), tmp_path / "run", teacher=TeacherConfig(net="table"))
    assert found["shard"] >= teacher_plan._OF_STEPS and made.config.selection == "kmeans"


def refused(tmp_path, monkeypatch, expected):
    """What is said where no teachers are of use, and sums are expected to bring this."""

    def no_use(*_, **__):
        raise teacher_rehearsal.NoUse("no useful answers")

    monkeypatch.setattr(teacher_rehearsal, "rehearse", no_use)
    monkeypatch.setattr(forecast, "of_crowds", lambda *_, **__: {"sums": expected})
    with pytest.raises(PateError) as caught:
        planned(files(tmp_path / "a"), tmp_path / "run")
    return str(caught.value)


def test_a_refusal_names_other_voters_that_are_of_use(tmp_path, monkeypatch):
    said = refused(tmp_path, monkeypatch, Expected(0.8, 0.7, 0.9, 0.4, 100, labels=5, hard=2))
    assert said.startswith(
        "no useful answers; or take --voters sums: 70% right (classes of ten clusters) to 90% (of"
    )


def test_a_refusal_names_no_voters_that_are_of_none(tmp_path, monkeypatch):
    assert refused(tmp_path, monkeypatch, Expected(0.41, 0.3, 0.5, 0.4, 100, labels=5)) == "no useful answers"


def test_it_says_in_five_lines_what_it_chose(usual):
    lines = teacher_plan.said(usual)
    assert len(lines) == 5 and all("\n" not in line for line in lines)
    told = " ".join(lines)
    for wanted in ("900 records", f"{usual['teachers']:,} of about", f"{usual['queries']:,}, each typical"):
        assert wanted in told
    assert (
        "no forecast without public labels; with labels made up in several ways" in told
        and "--voters auto" in told
    )


def test_labels_of_the_users_public_file_judge(tmp_path):
    data = files(tmp_path / "a")
    with np.load(data.public) as file:
        arrays = dict(file)
    np.savez(data.public, **arrays, labels=heaps(240, 1)[1])
    assert Expected(**planned(data, tmp_path / "run")[1]["expected"]).labels == 1


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The whole run of the default command on a user's own table, which is opened once."""
    folder, real, opened = tmp_path_factory.mktemp("teachers"), data.from_files, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "from_files", lambda *given, **named: opened.append(1) or real(*given, **named))
        pipeline.run(wished(files(folder / "data"), folder / "run"))
    assert len(opened) == 1
    return RunDirectory(folder / "run")


def test_the_default_run_costs_at_most_what_was_wished_and_stands_every_check(run):
    statement = accounting.Statement.from_dict(storage.read_json(run.public_statement, "statement"))
    assert 1.99 < statement.headline.epsilon <= 2.0 and verify.of_run(run, deep=True).of("failed") == []


def test_the_default_run_asks_typical_inputs_and_teaches_a_student(run):
    settings, results = run.record.read(), storage.read_json(run.results, "results")
    assert settings.vote(1).selection == "space" and settings.teacher.net == "linear"
    assert results["answered"] == settings.of(PLANNED)["queries"] and results["near"] == 0
    assert results["student_accuracy"] > 0.85


def test_the_file_of_flags_repeats_why(run):
    said = run.config.read_text()
    for line in teacher_plan.said(run.record.read().of(PLANNED)):
        assert f"# {line}\n" in said


def test_the_same_command_again_is_the_same_run(run):
    before, made = run.ledger.read_bytes(), run.record.read().of(PLANNED)
    config = wished(run.record.read().data, run.root)
    pipeline.run(config)
    assert run.ledger.read_bytes() == before and run.record.read().of(PLANNED) == made


def test_queries_in_the_space_of_teachers_that_have_none_are_refused(tmp_path):
    with pytest.raises(PateError, match="space of linear teachers"):
        pipeline.run(
            honest_runs.by_teachers(tmp_path / "run", selection="space"),
        )


@pytest.mark.long
def test_the_default_run_on_drawn_images(tmp_path):
    pipeline.run(
        RunConfig(
            DataChoice("strokes", records=3000),
            PartitionChoice(seed=5),
            out=tmp_path / "run",
            epsilon=4.0,
            student=Ridge(),
        )
    )
    assert storage.read_json(RunDirectory(tmp_path / "run").results, "results")["student_accuracy"] > 0.6
