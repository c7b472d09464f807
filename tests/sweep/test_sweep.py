"""The sweep: every row is what the setting answers and costs by itself; nothing is done twice or lost."""

import io
import json
import re
import signal
import time

import forked
import jax
import numpy as np
import pytest
from commands import call
from rich.console import Console

from pate_jax.accounting.many import many
from pate_jax.errors import PateError
from pate_jax.mechanisms import ConfidentDiscreteGaussian, GNMax, LNMax, from_dict
from pate_jax.sweep import Grid, SweepConfig, cells, front, page, results, sweep, vote_sources
from pate_jax.sweep import rows as judged
from pate_jax.sweep.grid import from_file
from pate_jax.system import storage
from pate_jax.voting import Votes, save_votes

GRID = Grid(("gnmax", "confident-gnmax"), ("10", "20"), ("0.5T", "60"), ("30",), ("20", "40"))
TINY = [
    *(
        "strokes",
        "--records",
        "60",
        "--teachers",
        "3",
        "4",
        "--net",
        "mlp",
        "--epochs",
        "1",
        "--min-steps",
        "3",
    ),
    *("--mechanisms", "gnmax", "--seeds", "3"),
]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 40)
    votes = [np.bincount(np.append(random.integers(0, 3, 30), [one] * 70), minlength=3) for one in labels]
    path = tmp_path_factory.mktemp("sweep") / "votes.npz"
    np.savez(path, votes=np.array(votes), labels=labels)
    return path


@pytest.fixture(scope="module")
def whole(file, tmp_path_factory):
    """A finished sweep of 12 cells, with the exact epsilon of its front."""
    out = tmp_path_factory.mktemp("whole")
    return out, sweep(SweepConfig((str(file),), out=out, values=GRID, exact="front"))


def by_cell(rows):
    return {row["cell"]: row for row in rows}


@pytest.mark.long
def test_a_row_says_what_its_setting_answers_and_costs(file, whole):
    votes = np.load(file, allow_pickle=False)["votes"]
    rows = whole[1]["rows"]
    assert len(rows) == 12 and len({row["cell"] for row in rows}) == 12
    for row in rows:
        costs = many([from_dict(row["mechanism"])], votes, 1e-5, queries=[row["queries"]])
        assert row["published"] == costs.published[0] and row["data_independent"] == costs.data_independent[0]
        assert abs(row["answered"] - costs.answered[0]) < 5 * row["queries"] ** 0.5
        assert row["right"] <= row["answered"] <= row["queries"]
        assert row["versions"]["jax"] == jax.__version__ and row["judged_on"] == "private"
    plain = {row["queries"]: row["answered"] for row in rows if row["mechanism"]["name"] == "gnmax"}
    assert plain == {20: 20, 40: 40}
    exact = [row for row in rows if "exact" in row]
    assert by_cell(exact).keys() == by_cell(whole[1]["front"]).keys()
    assert all(row["exact"] <= row["data_independent"] for row in exact)


@pytest.mark.long
def test_answers_do_not_depend_on_the_company_or_the_devices(file):
    votes, words = np.load(file, allow_pickle=False)["votes"], np.arange(88, dtype=np.uint32).reshape(11, 8)
    some = [ConfidentDiscreteGaussian(40.0 + place, 30.0, 9.0 + place) for place in range(11)]
    together = judged.tallies(some, votes, None, [25, 40], words)
    for place in (0, 10):
        alone = judged.tallies(some[place : place + 1], votes, None, [25, 40], words[place : place + 1])
        found = judged.answers_to(some[place], votes, words[place])
        counted = [int(np.asarray(found.answered)[:size].sum()) for size in (25, 40)]
        assert together.answered[place].tolist() == alone.answered[0].tolist() == counted
        assert together.same[place].tolist() == alone.same[0].tolist()
        assert counted[1] < 40


@pytest.mark.long
def test_what_is_said_of_the_votes_goes_for_finished_cells_too(file, whole):
    public = sweep(SweepConfig((str(file),), out=whole[0], values=GRID, judged_on="public"))
    assert {row["judged_on"] for row in public["rows"]} == {"public"}
    back = sweep(SweepConfig((str(file),), out=whole[0], values=GRID))
    assert {row["judged_on"] for row in back["rows"]} == {"private"}


def test_rows_at_another_delta_or_of_another_file_are_not_weighed_against_each_other(tmp_path):
    grid, files = Grid(("gnmax",), ("20",)), [tmp_path / "votes.npz", tmp_path / "other" / "votes.npz"]
    files[1].parent.mkdir()
    for path, most in zip(files, (40, 50), strict=True):
        save_votes(path, Votes(np.array([[most, 50 - most]] * 9)))
    for path, delta in ((files[0], 0.1), (files[0], 1e-5), (files[1], 1e-5)):
        found = sweep(SweepConfig((str(path),), out=tmp_path / "out", values=grid, delta=delta))
    assert len({row["name"] for row in found["front"]}) == 2
    assert sorted(row["delta"] for row in found["front"]) == [1e-5, 1e-5, 0.1]
    said = io.StringIO()
    Console(file=said, width=150).print(page.terminal(found["rows"], found["front"]))
    assert " delta " in said.getvalue() and "1e-05" in said.getvalue()
    assert re.search(r"<td>1e-05</td>.*<td>0\.1</td>", (tmp_path / "out" / "sweep.html").read_text(), re.S)


def test_what_is_no_sweep_is_refused_before_anything_is_written(file, tmp_path):
    (tmp_path / "afile").touch()
    with pytest.raises(PateError, match="afile is a file; --out must name a folder"):
        sweep(SweepConfig((str(file),), out=tmp_path / "afile", values=GRID))
    np.savez(tmp_path / "empty.npz", votes=np.zeros((0, 5), int))
    with pytest.raises(PateError, match=r"empty.npz holds votes on no query: write one row"):
        sweep(SweepConfig((str(tmp_path / "empty.npz"),), out=tmp_path / "new", values=GRID))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"queries": ("5.4",)}, r"queries='5.4' must be a whole number of at least 1"),
        ({"queries": ("0",)}, r"queries='0' must be a whole number of at least 1"),
        ({"queries": ("0:9:4",)}, r"queries=0 must be at least 1"),
        ({"noises": ("10:20:2.5",)}, r"the number of values of noises='10:20:2.5' must be a whole number"),
        ({"noises": ("abc",)}, r"noises='abc' must be a number, a share like 0.2T, or a range"),
        ({"mechanisms": ()}, r"mechanisms names none: give at least one of lnmax"),
    ],
)
def test_a_grid_names_the_flag_and_the_remedy(values, said):
    with pytest.raises(PateError, match=said):
        grid = Grid(**{"mechanisms": ("gnmax",), **values})
        assert grid.mechanisms_for(50) and grid.queries_for(9)


def test_a_torn_line_is_done_again(tmp_path):
    path = tmp_path / "results.jsonl"
    results.append(path, [{"cell": "a", "n": 1}])
    with open(path, "ab") as stream:
        stream.write(b'{"cell": "b", "n"')
    assert list(results.read(tmp_path)) == ["a"]
    results.append(path, [{"cell": "b", "n": 2}])
    assert [json.loads(line)["cell"] for line in path.read_text().splitlines()] == ["a", "b"]


def test_two_commands_on_one_folder_are_told_to_share_the_cells(tmp_path):
    with (
        results.writing(results.file_of(tmp_path)),
        pytest.raises(PateError, match=r"is being written by process \d+ on .*--workers 4 shares the cells"),
    ):
        sweep(SweepConfig(("votes.npz",), out=tmp_path, values=GRID))


@pytest.mark.long
@pytest.mark.parametrize(("kind", "alarming"), [("private", True), ("public", False), ("synthetic", False)])
def test_the_page_says_whose_votes_settings_were_judged_on(whole, kind, alarming):
    rows = [{**row, "judged_on": kind} for row in whole[1]["rows"]]
    text = page.page(rows, front(rows), [])
    assert ('class="warn"' in text) == alarming == ("PRIVATE votes, and the choice is not paid for" in text)
    assert ("no epsilon on this page" in text) == alarming == ("3.6 bits" in text)
    assert (f"Judged on {kind} votes" in text) != alarming
    if not alarming:
        one = [{**row, "judged_on": "private"} for row in rows[:1]] + rows[1:]
        assert page.judged(one)[1], "one private row among public ones is a warning"


@pytest.mark.long
def test_the_page_is_whole_without_a_network(whole):
    text = (whole[0] / "sweep.html").read_text()
    assert text.count("<img ") == 3 and text.count("data:image/svg+xml;base64,") == 3
    assert not re.search(r'(src|href)="(?!data:)', text) and "<script" not in text
    assert {path.name for path in (whole[0] / "plots").iterdir()} == {
        "accuracy.svg",
        "thresholds.svg",
        "queries.svg",
    }


def test_the_front_keeps_what_nothing_beats():
    random = np.random.default_rng(0)
    some = [
        {
            "name": "ab"[place % 2],
            "votes": "1f",
            "source": "1f",
            "delta": (1e-5, 1e-6)[place % 3 == 0],
            "data_independent": float(epsilon) if place % 7 else None,
            "answered": int(answered),
            "label_accuracy": float(right),
            "student_accuracy": None,
        }
        for place, (epsilon, answered, right) in enumerate(random.integers(0, 6, (120, 3)))
    ]
    kept = front(some)
    assert len(kept) < 60 and all(row["answered"] for row in kept)

    def beats(one, other):
        gains = [
            other["data_independent"] - one["data_independent"],
            one["answered"] - other["answered"],
            one["label_accuracy"] - other["label_accuracy"],
        ]
        alike = one["name"] == other["name"] and one["delta"] == other["delta"]
        return alike and min(gains) >= 0 and max(gains) > 0

    counted = [row for row in some if row["data_independent"] is not None and row["answered"]]
    for row in counted:
        beaten = any(beats(other, row) for other in counted)
        assert beaten != any(row == other for other in kept)


def test_grids_of_a_file(tmp_path):
    path = tmp_path / "grid.json"
    path.write_text(
        json.dumps(
            [
                {"mechanisms": ["lnmax"], "noises": ["0.1T", 20]},
                {
                    "settings": [{"name": "confident-discrete-gaussian", "threshold": "0.5T", **TEST}],
                    "queries": 7,
                },
            ]
        )
    )
    first, second = from_file(path)
    assert first.mechanisms_for(100) == [LNMax(10.0), LNMax(20.0)]
    assert second.mechanisms_for(100) == [ConfidentDiscreteGaussian(50.0, 30.0, 10.0)]
    assert second.queries_for(9) == [7]


TEST = {"sigma_threshold": "0.3T", "sigma": 10}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"noise": [3]}', "a grid has the fields"),
        ("[]", "no grid"),
        ('{"settings": [{"name": "magic"}]}', "needs a name"),
        ('{"mechanisms": ["gnmax"], "noises": ["ten"]}', "must be a number"),
        ('{"mechanisms": ["gnmax"], "noises": ["0:9:3"]}', "start and end above 0"),
        ('{"mechanisms": ["interactive-gnmax"]}', "cannot be swept"),
    ],
)
def test_a_bad_grid_is_refused(tmp_path, body, message):
    path = tmp_path / "grid.json"
    path.write_text(body)
    with pytest.raises(PateError, match=message):
        [grid.mechanisms_for(50) for grid in from_file(path)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"students": ("gnan",)}, "student 'gnan' is unknown"),
        ({"delta": 0.0}, "delta"),
        ({"teachers": (0,)}, "teachers"),
        ({"values": Grid(queries=("41",))}, "more than the 40 queries"),
        (
            {"students": ("supervised",), "values": Grid(("gnmax",), ("10",), queries=("20",))},
            "give --public and --test",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(file, tmp_path, settings, message):
    with pytest.raises(PateError, match=message):
        sweep(SweepConfig((str(file),), out=tmp_path, **settings))


def test_without_votes_there_is_nothing_to_do(tmp_path):
    with pytest.raises(PateError, match="no source of votes"):
        sweep(SweepConfig(out=tmp_path))


@pytest.mark.long
def test_teachers_are_trained_once_for_each_number_and_students_for_each_cell(tmp_path, capsys):
    def trained():
        files = [path for path in tmp_path.glob("teachers/*/private/teachers/**/*") if path.is_file()]
        return {path: path.stat().st_mtime_ns for path in files}

    one = ["sweep", *TINY, "--queries", 9, "--out", tmp_path, "--json", "--noises"]
    student = ["--students", "supervised", "--student.net", "mlp", "--student.steps", 4]
    assert call(*one, 1) == 0
    assert json.loads(capsys.readouterr().out)["cells"] == 2
    before = trained()
    for done in (0, 2):
        assert call(*one, 2, *student) == 0
        assert json.loads(capsys.readouterr().out)["done_before"] == done
    rows = results.read(tmp_path).values()
    assert before and trained() == before and len(rows) == 4
    assert [(row["student_accuracy"] is None) == (row["student"] is None) for row in rows] == [True] * 4
    assert len({row["votes"] for row in rows}) == 2 == len(list((tmp_path / "votes").glob("*.npz")))
    assert {(row["judged_on"], row["teachers"]) for row in rows} == {("synthetic", 3), ("synthetic", 4)}


@pytest.mark.long
def test_the_terminal_shows_the_front_and_the_warning(file, whole, capsys):
    flags = ["--mechanisms", "gnmax", "--noises", "10", "20", "--queries", "20", "40"]
    assert call("sweep", file, "--out", whole[0], *flags) == 0
    out = capsys.readouterr().out
    assert "Pareto front" in out and "PRIVATE votes" in out and "sweep.html" in out
    assert "votes, 100 teachers" in out


@pytest.mark.long
def test_killed_again_and_again_a_sweep_ends_with_the_same_rows(tmp_path):
    flags = [*TINY, "--noises", "1", "2", "3", "--queries", "9", "15", "--exact", "all"]
    book = tmp_path / "killed" / "results.jsonl"
    codes = []
    for count in (1, 7, 13):  # of the lines that are there when it is killed
        process = forked.pate(["sweep", *flags, "--out", book.parent])
        while process.is_alive() and (not book.exists() or book.read_bytes().count(b"\n") < count):
            time.sleep(0.002)
        process.kill()
        codes += forked.ended([process])
    assert -signal.SIGKILL in codes and {*codes} <= {-signal.SIGKILL, 0}
    for name in ("killed", "whole"):
        assert call("sweep", *flags, "--out", tmp_path / name) == 0
    assert results.read(tmp_path / "killed") == results.read(tmp_path / "whole")
    lines = book.read_text().splitlines()
    assert len(lines) == 2 * 12, "one line for the row of each cell and one for its exact epsilon"


@pytest.mark.long
def test_votes_are_kept_under_the_digest_of_their_content(file, whole):
    votes = vote_sources.of_file(file, whole[0], None).votes()
    assert (whole[0] / "votes" / f"{vote_sources.content_digest(votes)}.npz").exists()
    changed = votes._replace(votes=votes.votes[::-1])
    assert vote_sources.content_digest(changed) != vote_sources.content_digest(votes)
    assert storage.digest(votes.votes, votes.labels).startswith(vote_sources.content_digest(votes))


@pytest.mark.long
def test_cells_have_the_same_digest_wherever_they_are(file, whole):
    digests = [
        cell.digest
        for plain in cells.cells_of("votes", 100, 2 * GRID.asked(100, 3, [20, 40], 1e-5), delta=1e-5, seed=0)
        for cell in (plain, plain.taught("vat", ""))
    ]
    assert len(digests) == len(set(digests)) == 24
    assert (
        cells.Cell("votes", 9, GNMax(4), 7, 1e-5, 0).digest
        == cells.Cell("votes", 9, GNMax(4.0), 7, 1e-5, 0).digest
    )
