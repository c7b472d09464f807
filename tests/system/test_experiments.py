"""The experiments: every grid is one of runs; the papers' figures come out digit for digit."""

import importlib
import json
import math
from pathlib import Path

import honest_runs
import numpy as np
import pytest

from experiments import (
    compare,
    compare_figure,
    partition_figure,
    pipeline_figure,
    publishable,
    published_votes,
    sensitivity_2018,
    student_cases,
    students,
    tutorial_svhn,
)
from pate_jax import accounting
from pate_jax.accounting import smooth
from pate_jax.cli.student import run_of
from pate_jax.errors import PateError
from pate_jax.mechanisms import ConfidentGNMax, LNMax
from pate_jax.runs import config_file, pipeline
from pate_jax.runs.thresholds import check_threshold
from pate_jax.sweep import results, whole_runs

ROOT = Path(__file__).parents[2]
VOTES = ROOT / "../shared/data/votes"
GOLDENS = ROOT / "../shared/data/goldens.json"
shared = pytest.mark.skipif(not GOLDENS.exists(), reason="the published votes are not here")


def votes_of(queries=60, teachers=90, classes=4):
    return smooth.example_votes(queries, teachers, classes)


def test_a_grid_is_of_runs_whose_settings_are_checked():
    """The presets: `pate sweep --runs FILE` makes their runs, each in a folder of its own."""
    found = {}
    for path in sorted((ROOT / "experiments/grids").iterdir()):
        configs = [run_of(words, str(path)) for words in config_file.grid(path)]
        found[path.stem] = len(whole_runs.cells_of(configs, Path("out")))
        for config in configs:
            if config.mechanism is not None:
                check_threshold(config.mechanism, config.partition.number)
    assert found.pop("mnist_epsilons") == 48 and {*found.values()} == {1} and len(found) == 7


def test_the_drawing_of_the_pipeline_is_what_its_script_makes():
    assert (ROOT / "docs/pipeline.svg").read_text() == pipeline_figure.drawing()


def by_the_librarys_formula(votes, rows, scale, delta):
    """The moments accountant row by row, as the tutorial's library writes it down."""
    epsilon, total = 2 / scale, np.zeros(8)
    for row in rows:
        gaps = (votes[row].max() - np.delete(votes[row], votes[row].argmax())) / scale
        q = min(sum((gap + 2) / (4 * math.exp(gap)) for gap in gaps), 1 - 1 / len(votes[row]))
        for place, moment in enumerate(range(1, 9)):
            found = epsilon * moment
            if q < 0.5:
                inside = (1 - q) * ((1 - q) / (1 - math.exp(epsilon) * q)) ** moment
                inside += q * math.exp(epsilon * moment)
                found = math.log(inside) if inside > 0 else found
            total[place] += min(epsilon**2 * moment * (moment + 1) / 2, found, epsilon * moment)
    return min((total - math.log(delta)) / np.arange(1, 9))


@pytest.mark.parametrize("scale", [5.0, 20.0])
def test_the_tutorials_epsilon_is_its_librarys(scale):
    votes = votes_of(40, 100, 10)
    labels = np.arange(40) % 10
    for rows in (labels, np.arange(40)):
        found = tutorial_svhn.tutorial_epsilon(votes, rows, scale, 1e-5)
        assert found == pytest.approx(by_the_librarys_formula(votes, rows, scale, 1e-5), rel=1e-12)


def test_labels_for_rows_hide_what_ten_certain_images_do_not_show():
    votes = votes_of(400, 100, 10)  # its first rows are the most unanimous
    labels = np.arange(400) % 10
    wrong = tutorial_svhn.tutorial_epsilon(votes, labels, 5.0, 1e-5)
    assert wrong < tutorial_svhn.tutorial_epsilon(votes, np.arange(400), 5.0, 1e-5) * 0.7


@pytest.mark.long
def test_the_tutorials_epsilon_needs_no_download(tmp_path, capsys):
    found = tutorial_svhn.epsilon(queries=300, teachers=60)
    assert (found["queries"], found["teachers"]) == (300, 60)
    assert found["epsilon_as_in_the_tutorial"] < 0.8 * found["epsilon_tutorial_every_query"]
    assert found["epsilon_exact"] < found["epsilon_data_independent"]
    assert capsys.readouterr().out.count("epsilon") == 4
    labels = np.random.default_rng(0).integers(0, 3, (7, 20))
    np.savez(tmp_path / "votes.npz", teacher_labels=labels, labels=labels[0])
    of_file = tutorial_svhn.epsilon(tmp_path / "votes.npz", queries=11, teachers=5)
    assert (of_file["queries"], of_file["teachers"]) == (11, 5)


@pytest.mark.long
def test_the_tutorials_epsilon_of_a_run_stands_beside_the_right_one(tmp_path, capsys):
    pipeline.run(honest_runs.by_teachers(tmp_path / "run", 3, mechanism=LNMax(2.0)))
    found = tutorial_svhn.compare(tmp_path / "run")
    assert found["epsilon_as_in_the_tutorial"] > 0 and found["epsilon_tutorial_every_query"] > 0
    assert "fed labels for row numbers" in capsys.readouterr().out


@shared
def test_the_published_figures_come_out_digit_for_digit():
    goldens = json.loads(GOLDENS.read_text())
    for row, name in zip(published_votes.TABLE_2018, ("mnist", "adult"), strict=False):
        found = published_votes.figures(row, np.load(row.found(VOTES))["votes"])
        wanted = goldens["confident_gnmax"][name]["published_expected"]
        assert found["published"] == pytest.approx(wanted["eps"], rel=1e-9)
        assert found["tight"] == pytest.approx(wanted["eps_cks"][0], rel=1e-9)
        assert found["answers"] == pytest.approx(wanted["answered"], rel=1e-9)
        assert (
            found["exact"] < min(found["tight"], found["data_independent"])
            and found["tight"] < found["published"]
        )


@shared
@pytest.mark.long
def test_the_2017_figures_come_out_digit_for_digit():
    goldens = json.loads(GOLDENS.read_text())["lnmax_2017"]
    names = ("mnist_first100", "mnist_first1000", "adult_first500")
    found = []
    for row, name in zip(published_votes.TABLE_2017, names, strict=True):
        found.append(published_votes.figures(row, np.load(row.found(VOTES))["votes"])["published"])
        wanted = goldens[f"{name}|noise_eps=0.05|delta=1e-05|moments=8"]
        assert found[-1] == pytest.approx(wanted["eps"], rel=1e-9)
    assert f"{found[0]:.2f}" == "2.04"  # as the paper prints it


def test_votes_that_are_not_there_are_asked_for(tmp_path):
    with pytest.raises(PateError, match="is no folder"):
        published_votes.main(tmp_path / "none")
    row = published_votes.TABLE_2018[2]
    assert row.found(tmp_path) is None


@pytest.mark.long
def test_the_tables_are_printed_for_the_votes_that_are_there(tmp_path, capsys):
    np.save(tmp_path / "mnist_250_teachers.npy", votes_of(700, 250, 10))
    published_votes.main(tmp_path, tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert sum("not here" in line for line in lines) == 4
    found = json.loads(lines[-1])
    assert [row["queries"] for row in found["rows"]] == [100, 700, 640]
    assert (tmp_path / "partition.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.long
def test_the_partition_is_the_scripts_own(monkeypatch):
    """One order, so that the release after all queries can be computed as the 2018 script does."""
    mechanism, votes = ConfidentGNMax(70, 50.0, 15.0), votes_of()
    monkeypatch.setattr(partition_figure, "ORDERS", np.array([8.0]))
    parts = partition_figure.partition(mechanism, votes, 1e-5)
    assert parts.order[-1] == 8.0 and len(parts.asked) == 60
    weight = np.diff(np.concatenate([[0], parts.answered]))
    local = sensitivity_2018.local_sensitivity(votes, 15.0, 8.0, 90)
    total = (weight[:, None] * local).sum(axis=0)
    spread = (total * np.exp(-0.49 / 8 * np.arange(90))).max()
    noise = (8 * math.exp(0.98 / 8) / spread) ** (1 / 3)
    wanted = sensitivity_2018.release_cost(8.0, 0.49 / 8, noise)
    assert parts.sanitising[-1] == pytest.approx(wanted, rel=1e-9)
    assert parts.delta[-1] == pytest.approx(math.log(1e5) / 7)
    assert (np.diff(parts.exact) >= 0).all() and (parts.exact <= parts.data_independent + 1e-12).all()
    assert partition_figure.draw(parts, 1e-5).startswith(b"<?xml")


def test_lnmax_is_counted_with_eight_moments():
    row = published_votes.Row("x", (), LNMax(20.0), 40, 1e-5, "")
    found = published_votes.figures(row, votes_of(60, 90, 4))
    assert found["queries"] == 40 and found["published"] >= found["tight"]


@pytest.mark.long
def test_the_bars_are_the_statements_figures(tmp_path, monkeypatch, capsys):
    setting = publishable.Setting("small", ConfidentGNMax(12.0, 10.0, 4.0), 9, teachers=15, classes=3)
    monkeypatch.setattr(publishable, "SETTINGS", (setting,))
    monkeypatch.setattr(publishable, "PICTURE", setting)
    votes = votes_of(12, 15, 3)
    np.savez(tmp_path / "votes.npz", votes=votes)
    publishable.main(tmp_path / "votes.npz", tmp_path / "bars.svg")
    picture, text = (tmp_path / "bars.svg").read_text(), capsys.readouterr().out
    stated = accounting.statement(setting.mechanism, votes[:9], None, 1e-5, pld=False, private=True)
    for name in ("published", "exact", "data_independent"):
        assert f">{stated.figures[name].epsilon:.2f}<" in picture
        assert f"{stated.figures[name].epsilon:.4f}" in text
    of_counts = setting.figure("counts").epsilon.epsilon
    assert of_counts > stated.headline.epsilon
    assert f"| small | 9 | {of_counts:.4f} | {stated.headline.epsilon:.4f} |" in text


def test_every_study_still_starts(monkeypatch, capsys):
    """Studies judged a rule once; what they import is still there, and each says what it is."""
    studies = sorted((ROOT / "experiments/studies").glob("*.py"))
    mains = [importlib.import_module(f"experiments.studies.{path.stem}") for path in studies]
    for study in [study for study in mains if hasattr(study, "main")]:
        monkeypatch.setattr("sys.argv", [study.__name__, "--help"])
        with pytest.raises(SystemExit) as ended:
            study.main()
        assert ended.value.code == 0 and "usage: " in capsys.readouterr().out


def test_missing_data_are_named(tmp_path):
    with pytest.raises(PateError, match="support2 cannot be downloaded: name a folder"):
        compare.opened("support2", None)
    with pytest.raises(PateError, match="reviews does not exist: put the data set there"):
        compare.opened("reviews", tmp_path)
    (tmp_path / "reviews").mkdir()
    with pytest.raises(PateError, match=r"needs private\.npz, public\.npz, test\.npz"):
        compare.opened("reviews", tmp_path)


def test_the_table_of_methods_names_what_is_missing(tmp_path, monkeypatch):
    """Lines of a grid with a hole, a refusal and a cell that took too long."""
    common = {"data": "adult", "delta": 1e-5, "seed": 0, "test": 100, "seconds": 1.0}
    rows = [
        {**common, "method": "sums", "epsilon": 1.0, "right": 0.8, "spent": 1.0},
        {**common, "method": "sums", "epsilon": 1.0, "right": 0.9, "spent": 1.0, "seed": 1},
        {**common, "method": "neighbours", "epsilon": 3.0, "refused": "it took longer than 9 CPU seconds"},
        {**common, "method": "neighbours", "epsilon": 1.0, "refused": "too few records"},
        {**common, "method": "no privacy", "epsilon": None, "right": 0.95, "spent": None},
    ]
    file, page = tmp_path / "compare.jsonl", tmp_path / "comparison.md"
    results.append(file, [{"cell": str(number), **row} for number, row in enumerate(rows)])
    page.write_text(f"before\n{compare_figure.BEGIN}\nold\n{compare_figure.END}\nafter\n")
    monkeypatch.setattr(compare_figure, "draw", lambda rows, title: b"drawn")
    compare_figure.write(file, tmp_path)
    told = page.read_text()
    assert told.startswith(f"before\n{compare_figure.BEGIN}\n") and "old" not in told
    assert told.endswith(f"{compare_figure.END}\nafter\n")
    assert "| data | method | 1 | 3 |" in told
    assert "| Adult | neighbours | none | no time |" in told
    assert "| Adult | sums | 85.0 (2) | not run |" in told
    assert "| Adult | no privacy | 95.0 | 95.0 |" in told
    assert "local sums, public labels alone | not run | not run |" in told
    assert "Not run yet: SUPPORT2, reviews, MNIST, Fashion-MNIST." in told
    assert (tmp_path / "compare_adult.svg").read_bytes() == b"drawn"


@pytest.mark.long
def test_the_picture_of_methods_has_a_line_for_each():
    row = {"data": "adult", "seed": 0, "test": 100, "seconds": 1.0, "spent": 1.0, "right": 0.8}
    rows = [{**row, "method": name, "epsilon": 1.0} for name in ("sums", "neighbours")]
    rows += [{**row, "method": "no privacy", "epsilon": None, "spent": None}]
    drawn = compare_figure.draw(rows, "Adult").decode()
    assert all(f">{name}<" in drawn for name in ("Adult", "sums", "neighbours", "no privacy"))


@pytest.mark.parametrize(
    ("case", "fold", "seed", "job"),
    [("mnist_publishable", 9, 0, "3ec89e5cb64c48cb"), ("mnist_publishable", 1, 0, "34703c691c071329")],
)
def test_students_of_earlier_versions_count_as_trained(case, fold, seed, job):
    """A setting that came later must not change the name of a result that was found without it."""
    assert students.Job(student_cases.CASES[case], fold, seed, "teachers").identity() == job


def test_a_case_that_ends_early_is_another_one_than_with_all_steps():
    names = {
        students.Job(student_cases.CASES[case], 9, 0, "teachers").identity()
        for case in ("mnist_publishable", "mnist_settled")
    }
    assert len(names) == 2
