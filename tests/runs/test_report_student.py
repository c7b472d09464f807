"""What pages say of the student and of its answers: right, complete, and of public things alone."""

import shutil

import honest_runs
import numpy as np
import pytest
from scipy import stats
from test_report import read

from pate_jax import aggregate, data
from pate_jax.accounting import Statement
from pate_jax.data import Part, readable
from pate_jax.data.archives import sources
from pate_jax.data.columns import Column, encode
from pate_jax.errors import PateError
from pate_jax.runs import kinds, results, stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.release import check, traces
from pate_jax.runs.report import html, run_pages, sections, sheet, words
from pate_jax.system import storage

RUNS = {"teachers": honest_runs.whole, "sums": lambda: honest_runs.crowd("sums")}


def text_of(page):
    return " ".join(" ".join(read(page).words).split())


@pytest.mark.parametrize(("right", "inputs"), [(0, 7), (7, 7), (1, 2), (3, 10), (950, 1000), (9973, 10_000)])
def test_intervals_are_those_of_clopper_and_pearson(right, inputs):
    exact = stats.binomtest(right, inputs).proportion_ci(0.95, "exact")
    assert np.allclose(sheet.interval(right, inputs), (exact.low, exact.high), rtol=1e-9)


def test_printed_intervals_are_never_narrower_than_the_computed_ones():
    assert html.interval(0.12301, 0.12399) == "12.3% to 12.4%"
    assert html.interval(0.123, 0.124) == "12.3% to 12.4%"
    assert html.interval(0.0, 1.0) == "0.0% to 100.0%"


def test_the_facts_count_by_class_and_by_how_sure_the_student_is():
    random = np.random.default_rng(3)
    probabilities = random.dirichlet([0.3] * 4, 500).astype(np.float32)
    labels = random.integers(0, 3, 500)  # the fourth class does not occur
    part = Part(np.zeros((500, 2), np.float32), labels, np.arange(500).astype(str))
    facts = sheet.facts(sheet.Seen("test", part, probabilities), ("a", "b", "c", "d"))
    right = probabilities.argmax(1) == labels
    assert (facts["inputs"], facts["right"]) == (500, right.sum())
    shares = [row["right"] / row["inputs"] for row in facts["classes"]]
    assert shares == sorted(shares) and {row["name"] for row in facts["classes"]} == {"a", "b", "c"}
    assert sum(row["inputs"] for row in facts["classes"]) == 500
    best = probabilities.max(1)
    for row in facts["unsure"]:
        of = (best >= row["from"]) & (best < row["below"] + (row["below"] == 1))
        assert (row["inputs"], row["right"]) == (of.sum(), right[of].sum())
        assert row["said"] == pytest.approx(best[of].mean(), abs=1e-5)


def test_without_labels_nothing_is_said_to_be_right():
    part = Part(np.zeros((3, 2), np.float32), None, np.array(["a", "b", "c"]))
    found = sheet.Seen("public", part, np.eye(3, dtype=np.float32))
    facts = sheet.facts(found, ("a", "b", "c"))
    assert sheet.accuracy(found) is None and facts["right"] is None and facts["classes"] == []
    results = {"seen": facts, "student_accuracy": None, "dataset": "d"}
    assert "right" not in text_of("".join(sections.every(results, None)))


def test_a_picture_holds_its_pixels_and_nothing_else():
    random = np.random.default_rng(1)
    for shape in ((1, 1, 1), (28, 28, 1), (64, 9, 3)):
        pixels = random.integers(0, 256, shape, dtype=np.uint8)
        whole = sheet.png(pixels)
        assert np.array_equal(sheet.read_png(whole), pixels) and np.array_equal(
            sheet.thumbnail(pixels), pixels
        )
        for broken in (
            whole + b"x",
            whole[:-1],
            whole[:40] + b"x" + whole[41:],
            b"",
            whole[:33] + whole[45:],
        ):
            with pytest.raises(ValueError):
                sheet.read_png(broken)


def test_pillow_reads_the_same_pixels(tmp_path):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(2).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    (tmp_path / "a.png").write_bytes(sheet.png(pixels))
    with image.open(tmp_path / "a.png") as opened:
        assert np.array_equal(np.asarray(opened), pixels)


def test_rows_are_shown_as_their_owner_wrote_them():
    plan = [
        Column("age", filling=40.0, indicator=True),
        Column("sex", ("f", "m", "")),
        Column("born", form="%d/%m/%Y"),
        Column("ill", form="boolean"),
        Column("pay", logarithmic=True),
    ]
    table = {
        "age": ["61.5", "NA"],
        "sex": ["m", ""],
        "born": ["02/03/1990", "01/01/1970"],
        "ill": ["True", "false"],
        "pay": ["31000", "0"],
    }
    first, second = (readable.decoded(row, plan) for row in encode(table, plan, "x"))
    assert [value for _, value in first] == ["61.5", "m", "1990-03-02", "yes", "31,000"]
    assert [value for _, value in second] == ["missing", "missing", "1970-01-01", "no", "0"]


def test_every_feature_of_adult_has_its_column():
    person = "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White"
    row = sources.parse(f"{person}, Male, 2174, 0, 40, United-States, <=50K".encode(), "adult.data").inputs[0]
    shown = dict(readable.decoded(row, readable._ADULT))
    assert sum(column.width for column in readable._ADULT) == sources.FEATURES
    assert shown["age"] == "39" and shown["occupation"] == "Adm-clerical" and shown["sex"] == "Male"


@pytest.mark.parametrize("kind", RUNS)
def test_a_released_page_shows_the_student_and_passes_every_check(kind):
    run = RUNS[kind]()
    facts = storage.read_json(run.results, "results")
    text = text_of(run.public_report.read_text())
    assert check.audit(run.release) == []
    assert words.accuracy(facts) in text and facts["seen"]["classes"][0]["name"] in text
    assert "Which classes it gets wrong" in text and "What was asked" in text
    kept = storage.read_json(run.sheet, results.SHEET)
    assert 0 < len(kept["asked"]) + len(kept["unsure"]) <= traces.MOST
    for title in ("How the student was chosen", "What more or less"):
        assert title not in text


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.usefixtures("without_pictures")
def test_the_pages_of_a_finished_run_are_written_again_byte_for_byte(kind, tmp_path):
    run = RunDirectory(shutil.copytree(RUNS[kind]().root, tmp_path / "run"))
    pages, tell = (run.public_report, run.report), kinds.of(run).tell
    public = run.public_report.read_bytes()
    tell(run)
    before = [page.read_bytes() for page in pages]
    for page in pages:
        page.unlink()
    tell(run)
    assert [page.read_bytes() for page in pages] == before and before[0] == public


@pytest.mark.parametrize("kind", RUNS)
def test_the_sheet_holds_public_inputs_with_their_own_answers(kind):
    run = RUNS[kind]()
    kept = storage.read_json(run.sheet, results.SHEET)
    with np.load(honest_runs.table().public, allow_pickle=False) as file:
        rows = zip(file["inputs"], file["labels"], strict=True)
        known = {tuple(f"{number:.3g}" for number in row): str(label) for row, label in rows}
    for item in kept["asked"] + kept["unsure"]:
        assert known[tuple(value for _, value in item["record"])] == item["label"]
    if kind == "teachers":
        answers = stages.load_answers(run)
        given = {str(label) for label in np.asarray(answers.labels)[np.asarray(answers.answered)]}
        assert {item["answer"] for item in kept["asked"]} == given


@pytest.mark.parametrize("kind", RUNS)
def test_no_private_record_and_no_name_of_one_is_on_the_public_page(kind):
    run = RUNS[kind]()
    page, text = run.public_report.read_text(), text_of(run.public_report.read_text())
    with np.load(honest_runs.table().private, allow_pickle=False) as file:
        private = {name: file[name] for name in ("inputs", "ids", "users")}
    shown = [[f"{number:.3g}" for number in row] for row in private["inputs"]]
    told = [" ".join(f"number {place}: {value}" for place, value in enumerate(row, 1)) for row in shown]
    assert "number 1: " not in text and not any(record in text for record in told)
    assert not any(name in page for name in {*private["ids"].tolist(), *private["users"].tolist()})


def test_what_is_planted_in_private_records_is_not_shown(tmp_path):
    for name, rows in (("private", 60), ("public", 20), ("test", 10)):
        own = name == "private"
        lines = [
            f"{name}-{7 * row % rows:03d}-x,{7654321 if own else row},"
            f"{'marker' if own and row % 2 else 'red'},{'yes' if row % 3 else 'no'}"
            for row in range(rows)
        ]
        (tmp_path / f"{name}.csv").write_text("\n".join(["id,size,colour,sick", *lines]))
    paths = {name: tmp_path / f"{name}.csv" for name in ("private", "public", "test")}
    dataset = data.from_files(**paths, label_column="sick", id_column="id")
    found = sheet.look(lambda inputs: np.full((len(inputs), 2), 0.5, np.float32), dataset)
    given = aggregate.Answers(np.arange(20) % 2, np.ones(20, bool))
    kept = sheet.made(dataset, dataset.public, given, found)
    results = {"dataset": "d", "student_accuracy": 0.5, "seen": sheet.facts(found, dataset.class_names)}
    page = "".join(sections.every(results, kept))
    assert "colour: <b>red</b>" in page and "size: <b>19</b>" in page and ">yes</td>" in page
    assert not any(planted in page for planted in ("marker", "7654", "7,654", "private-0", str(tmp_path)))


def test_pictures_of_private_inputs_and_anything_but_pixels_are_found(tmp_path):
    private = np.random.default_rng(4).integers(0, 256, (9, 80, 70, 1), dtype=np.uint8)
    harmless, held = (sheet.address(sheet.thumbnail(one)) for one in (private[0] // 2, private[3]))
    (tmp_path / "report.html").write_text(f'<img src="{harmless}"><img src="{held}">')
    secrets = check.Secrets(inputs=lambda: iter([private]))
    found = [fault for fault in check.audit(tmp_path, secrets) if "report.html" in fault]
    assert found == ["report.html shows the inputs of 1 private records"]
    (tmp_path / "report.html").write_text(f'<img src="{harmless}AAAA">')
    with pytest.raises(PateError, match=r"report\.html holds an embedded file"):
        check.check(tmp_path)
    (tmp_path / "report.html").write_text(f'<img src="{harmless}">' * (traces.MOST + 1))
    assert any("61 pictures" in fault for fault in check.audit(tmp_path))


def test_a_sheet_of_images_marks_what_is_wrong():
    random = np.random.default_rng(5)
    images = random.integers(0, 256, (200, 8, 8, 3), dtype=np.uint8)
    labels, answers = np.arange(200) % 3, np.where(np.arange(200) < 150, np.arange(200) % 3, 0)
    part = Part(images, labels, np.arange(200).astype(str))
    kind = type("Set", (), {"public": part, "class_names": ("cat & dog", "cow", "fox"), "columns": ()})
    kind.show_public = True
    given = aggregate.Answers(answers, np.arange(200) % 2 == 0)
    found = sheet.Seen("public", part, random.dirichlet([1.0] * 3, 200).astype(np.float32))
    kept = sheet.made(kind, part, given, found)
    assert len(kept["asked"]) + len(kept["unsure"]) == traces.MOST and kept["answered"] == 100
    assert [item["answer"] for item in kept["asked"]] == ["cat & dog"] * 16 + ["cow"] * 16 + ["fox"] * 16
    wrong = sum(item["answer"] != item["label"] for item in kept["asked"])
    results = {"dataset": "zoo", "student_accuracy": None, "seen": None}
    page = "".join(sections.every(results, kept))
    assert page.count('<li class="off">') == wrong > 0 and page.count("alt=") == 48
    assert "cat &amp; dog" in page and "cat & dog" not in page
    text, shown = traces.parted(page)
    assert len(shown) == 48 and "data:" not in text


def test_what_other_budgets_would_give_and_how_the_student_was_chosen_are_shown_where_known():
    results = {
        "dataset": "d",
        "student_accuracy": None,
        "planned": [{"epsilon": 0.5, "accuracy": 0.91, "low": 0.9, "high": 0.93}],
        "method": "vat",
        "comparison": [
            {"method": "ridge<", "score": 0.87, "error": 0.012, "answers": 300},
            {"method": "vat", "score": 0.91, "error": 0.011, "answers": 300},
        ],
    }
    text = text_of("".join(sections.every(results, None)))
    assert "0.5 91.0% 90.0% to 93.0%" in text and "ridge< 0.870 0.012 300" in text
    assert "vat , taken 0.910" in text
    assert sections.every({**results, "planned": [], "comparison": []}, None) == []


@pytest.mark.parametrize("kind", RUNS)
def test_the_terminal_says_the_publishable_figure_first_and_no_sensitive_one(kind):
    run = RUNS[kind]()
    statement = Statement.from_dict(storage.read_json(run.statement, "statement"))
    said = run_pages.summary(storage.read_json(run.results, "results"), statement)
    assert said.startswith(f"Publishable: {words.headline(statement)}.")
    assert "sensitive" not in said and "without noise" not in said
    for name, figure in statement.figures.items():
        if figure.status == "sensitive" and figure.epsilon:
            assert f"{figure.epsilon:.4f}" not in said, name
    card = (run.student / "MODEL_CARD.md").read_text()
    assert card.index("Privacy: (") < card.index("Accuracy on public test data")
    assert "95% interval" in card
