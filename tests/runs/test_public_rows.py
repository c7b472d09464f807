"""An owner's public rows leave the house with --show-public alone: in no page, card, statement or student."""

import functools
import html
import json
import shutil

import honest_runs
import jax
import numpy as np
import pytest
from commands import call
from hypothesis import given, settings
from hypothesis import strategies as st

import pate_jax
from pate_jax import data, student
from pate_jax.aggregate import Answers, soft_answers
from pate_jax.audit import verify
from pate_jax.data import tables
from pate_jax.data.dataset import AS_STORED
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.runs.baselines import training
from pate_jax.runs.baselines.training import BaselineConfig
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import open_data
from pate_jax.runs.report import sheet
from pate_jax.runs.settings import DataChoice
from pate_jax.runs.tune import candidates as tuning
from pate_jax.runs.tune.settings import Setting, TuneConfig
from pate_jax.student import Auto, Linear, PublicInputs, Ridge, Tandem
from pate_jax.system import storage

NAMES = {"label": "sick", "id": "key"}


def people(part, count, seed):
    """Rows with a note that nobody else has; classes are rings, so nearness to rows predicts them best."""
    random = np.random.default_rng(seed)
    angle, far = random.uniform(0, 7, count), np.where(np.arange(count) % 2, 3.0, 1.0)
    return {
        "key": [f"{part}-{11 * row % count}-key" for row in range(count)],
        "east": (1000 + far * np.cos(angle) * 10).round(4).tolist(),
        "north": (1000 + far * np.sin(angle) * 10).round(4).tolist(),
        "note": [f"{part} remark {seed} of {row} zq" for row in range(count)],
        "sick": np.where(np.arange(count) % 2, "yes", "no").tolist(),
    }


PARTS = {
    "private": people("private", 420, 1),
    "public": people("public", 120, 2),
    "test": people("test", 40, 3),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("people")
    for part, table in PARTS.items():
        (folder / f"{part}.csv").write_bytes(
            tables.to_csv({name: [*map(str, x)] for name, x in table.items()})
        )
    return {part: folder / f"{part}.csv" for part in PARTS}


@pytest.fixture(scope="module")
def shown(files, tmp_path_factory):
    """Runs whose public rows may go out."""

    @functools.cache
    def made(kind):
        run = RunDirectory(tmp_path_factory.mktemp("shown") / kind)
        KINDS[kind](files, run.root, True)
        return run

    return made


def choice(files, shown):
    return DataChoice(**files, label_column="sick", id_column="key", show_public=shown)


def by_run(files, out, shown, **settings):
    pate_jax.run(**files, **NAMES, out=out, show_public=shown, **settings)


def tuned(files, out, shown):
    listed = (Setting("sums", student=Linear()), Setting("neighbours", queries=40, student=Ridge()))
    tuning.run(TuneConfig(choice(files, shown), listed, seed=4, epsilon=8.0, each_once=True, out=out))


def trained(files, out, shown):
    training.run(
        BaselineConfig(data=choice(files, shown), out=out, epsilon=8.0, steps=2, batch=40, net="linear")
    )


KINDS = {
    "teachers": lambda *given: by_run(
        *given,
        voters="teachers",
        teachers=20,
        teacher=TeacherConfig(net="linear"),
        queries=60,
        epsilon=30.0,
        mechanism=DiscreteGaussianMax(4.0),
        student=Ridge(),
        seed=3,
    ),
    "neighbours": lambda *given: by_run(
        *given, voters="neighbours", queries=60, epsilon=30.0, student=Ridge(), seed=3
    ),
    "auto": lambda *given: by_run(*given, epsilon=8.0),
    "sums": lambda *given: by_run(*given, voters="sums", epsilon=8.0),
    "dpsgd": trained,
    "tune": tuned,
}


def held(run, dataset):
    """Public rows that stand in any array of a release, in any of their forms."""
    public = dataset.public.inputs
    forms = [
        form.astype(np.float32).tobytes()
        for rows in (public, dataset.preprocessing.apply(public))
        for form in rows
    ]
    arrays = storage.read_arrays(run.student / "parameters.npz", "student-parameters").values()
    every = b"".join(np.ascontiguousarray(turned).tobytes() for one in arrays for turned in (one, one.T))
    return sum(form in every for form in forms)


def spelt(run):
    """Distinctive values of public rows that stand in any text of a release."""
    texts = [path.read_text() for path in run.release.rglob("*") if path.suffix not in ("", ".npz")]
    told = html.unescape(" ".join(texts))
    public = PARTS["public"]
    marks = [*public["note"], *public["key"]]
    rows = zip(public["east"], public["north"], strict=True)
    marks += [f"<b>{east:,.0f}</b></span> <span" for east, _ in rows]
    return [mark for mark in marks if mark in told]


@pytest.mark.parametrize("kind", KINDS)
def test_no_public_row_is_in_any_byte_of_a_release_without_the_flag(kind, files, tmp_path):
    run = RunDirectory(tmp_path / "run")
    KINDS[kind](files, run.root, False)
    assert not held(run, open_data(choice(files, False))) and spelt(run) == []
    page = run.public_report.read_text()
    assert (
        'title="column' not in page and "They are not shown here" in page * (kind != "dpsgd")
    ) or kind == "dpsgd"
    assert "as they are" not in (run.student / "MODEL_CARD.md").read_text()
    found = verify.at(run.root)
    assert found.of("failed") == []
    assert any("shows a public input" in one for one in found.of("passed"))
    if kind not in ("dpsgd", "tune"):
        assert 'title="column 1">' in run.report.read_text()  # the owner sees them


@pytest.mark.parametrize("kind", ["neighbours", "teachers"])
def test_with_the_flag_they_may_go_out(kind, files, shown):
    run = shown(kind)
    assert held(run, open_data(choice(files, True))) > 10 and spelt(run)
    assert verify.at(run.root).of("failed") == []


def test_verify_finds_rows_that_were_not_to_go_out(shown, tmp_path):
    """A student that holds rows, and a page that shows them, in a run whose owner did not allow it."""
    run = RunDirectory(shutil.copytree(shown("neighbours").root, tmp_path / "run"))
    body = storage.read_json(run.settings, "settings")
    body["data"]["show_public"] = False
    storage.write_json(run.settings, "settings", body)
    found = " ".join(verify.at(run.root).of("failed"))
    assert "examples holds the inputs of" in found and "public inputs that may not go out" in found
    assert "report.html spells out" in found


@pytest.mark.parametrize("voters", ["auto", "neighbours", "sums", "teachers"])
@pytest.mark.parametrize("method", [Ridge(), Tandem(steps=2)], ids=["ridge", "tandem"])
def test_a_student_that_would_hold_images_is_refused_before_anything_is_written(voters, method, tmp_path):
    parts = honest_runs.images(tmp_path)
    files = {part: getattr(parts, part) for part in ("private", "public")}
    said = f"student method='{method.method}' holds public images .*--show-public"
    more = {"teachers": 4, "mechanism": DiscreteGaussianMax(1.0)} if voters == "teachers" else {}
    with pytest.raises(PateError, match=said):
        pate_jax.run(**files, out=tmp_path / "run", voters=voters, student=method, **more)
    assert not (tmp_path / "run" / "private" / "settings.json").exists()
    assert not (tmp_path / "run" / "private" / "ledger.jsonl").exists()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.booleans(), st.booleans())
def test_no_student_of_tables_holds_a_row_that_is_not_shown(seed, soft, shown):
    random = np.random.default_rng(seed)
    pool = random.normal(size=(60, 2)).astype(np.float32)
    inside = (np.hypot(*pool.T) < 1).astype(int)
    answers = Answers(inside, np.ones(60, bool))
    if soft:
        answers = soft_answers(0.8 * np.eye(2)[inside] + 0.1, np.full(60, 0.1))
    public = PublicInputs(pool, AS_STORED, 2, ("no", "yes"), shown)
    made = student.fit(jax.random.key(seed), public, answers, Ridge())
    assert ("examples" in made.parameters) <= shown
    chosen = student.choose(jax.random.key(seed), public, answers, Ridge())
    assert chosen.config == Ridge()


def test_images_that_may_not_go_out_are_learned_by_a_net():
    random = np.random.default_rng(0)
    pool = random.integers(0, 255, (40, 8, 8, 1), dtype=np.uint8)
    answers = Answers(np.arange(40) % 2, np.ones(40, bool))
    public = PublicInputs(pool, AS_STORED, 2, ("no", "yes"), False)
    assert student.choose(jax.random.key(0), public, answers).config.method == "fixmatch"
    for method in (Ridge(), Tandem(steps=1)):
        with pytest.raises(PateError, match="--show-public"):
            student.fit(jax.random.key(0), public, answers, method)


def test_data_sets_by_name_are_shown_as_they_are():
    assert data.load("strokes", size=20, public_size=5, test_size=5).show_public
    assert not honest_runs_dataset().show_public
    body = {"kind": "table", "shown": True, "answered": 1, "asked": [{"record": []}], "unsure": []}
    assert sheet.released(body) == body and sheet.released(None) is None
    assert sheet.released({**body, "shown": False})["asked"] == []


def honest_runs_dataset():
    return open_data(honest_runs.table())


def test_votes_from_elsewhere_show_their_pool_only_if_told(tmp_path):
    run = RunDirectory(shutil.copytree(honest_runs.elsewhere().root, tmp_path / "run"))
    assert 'title="column' not in run.public_report.read_text() if run.public_report.exists() else True
    refused = honest_runs.whole().root
    assert call("student", refused, "--show-public") == 2


def test_thumbnails_of_public_images_stay_inside(tmp_path, small_nets):
    parts = honest_runs.images(tmp_path)
    for shown in (False, True):
        run = RunDirectory(tmp_path / f"run{shown}")
        pate_jax.run(
            parts.private,
            parts.public,
            out=run.root,
            voters="sums",
            epsilon=8.0,
            student=Linear(),
            show_public=shown,
        )
        assert ("data:image/png" in run.public_report.read_text()) == shown
        assert "data:image/png" in run.report.read_text()
        assert json.loads(run.settings.read_text())["data"]["show_public"] == shown
        assert verify.at(run.root).of("failed") == []


def test_auto_is_no_student_that_must_hold_images():
    assert Auto().resolved(image=True).method == "fixmatch"
