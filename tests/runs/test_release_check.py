"""Every file of every kind of release is opened: nothing private is in it, and what is planted is found."""

import json
import re
import shutil
import zipfile

import honest_runs
import numpy as np
import pytest

from pate_jax import voting
from pate_jax.audit import secrets as confidential
from pate_jax.audit import verify
from pate_jax.audit.subject import Subject
from pate_jax.errors import PateError
from pate_jax.runs import chain, ledger
from pate_jax.runs.release import check, traces
from pate_jax.system import storage

KINDS = {
    "private": honest_runs.whole,
    "seeded": lambda: honest_runs.whole(7),
    "elsewhere": honest_runs.elsewhere,
}


def opened(folder):
    """Every file of a folder: its text, or every byte of every member for an archive."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".npz":
            with zipfile.ZipFile(path) as archive:
                found |= {f"{name}/{one}": archive.read(one) for one in archive.namelist()}
        else:
            found[name] = path.read_bytes()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_of_a_release_is_free_of_what_is_private(kind):
    """Written without the audit, so that one does not vouch for the other."""
    run = KINDS[kind]()
    files = opened(run.release)
    assert {name.split("/")[0] for name in files} == {"statement.json", "report.html", "student"}
    votes, whole = voting.load_votes(run.votes), storage.read_json(run.statement, "statement")
    entropy = storage.read_json(run.keys, "keys")["entropy"]
    (line,) = ledger.read(run.ledger)
    unwanted = [str(run.root), run.root.parent.name, run.secret.derive("partition").hex()]
    unwanted += [
        line.exact,
        line.noise,
        *line.public.split(),
        line.values,
        chain.read(run.ledger)[0]["digest"],
    ]
    unwanted += [entropy] if entropy else []
    unwanted += [str(row.tolist())[1:-1] for row in votes.votes]
    if kind != "elsewhere":
        unwanted += [f"private-entry-{row:03d}" for row in range(80)]
        unwanted += [f"patient-{row:03d}" for row in range(40)]
    for name, content in files.items():
        for secret in unwanted:
            assert secret.encode() not in content, (name, secret)
        for array in (votes.votes, votes.teacher_labels):
            assert array is None or array.tobytes() not in content, name
        assert not re.search(rb"(?i)\bseed\W{1,3}\d", content), name
    published = json.loads(files["statement.json"])
    assert set(published["figures"]) <= {"data_independent", "sanitised"}
    epsilon = whole["figures"]["exact"]["epsilon"]
    for name, content in files.items():
        assert f"{epsilon:.4f}".encode() not in content, name
        assert b'"cost"' not in content and b"rdp" not in content.replace(b"wordprocessing", b""), name


@pytest.mark.parametrize("kind", ["private", "seeded"])
def test_no_array_of_a_teacher_is_in_the_student(kind):
    run = KINDS[kind]()
    student = storage.read_arrays(run.student / "parameters.npz", "student-parameters")
    compared = 0
    for what, array in confidential.secrets(Subject(run)).arrays():
        for own in student.values():
            if own.shape == array.shape[1:] and np.ptp(own) > 0:
                compared += len(array)
                assert not any(np.array_equal(own, row) for row in array), what
    assert compared >= 2 * honest_runs.TEACHERS  # kernels of teachers and student have one shape here


@pytest.mark.parametrize("kind", KINDS)
def test_the_audit_passes_an_honest_release(kind):
    run = KINDS[kind]()
    found = list(check.look(run.release, confidential.secrets(Subject(run))))
    unknown = ["that the student holds no private input: the private records are not at hand"]
    assert [one.text for one in found if one.outcome != "passed"] == unknown * (kind == "elsewhere"), found
    assert {finding.outcome for finding in check.agrees(run.release)} == {"passed"}


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(honest_runs.whole().release, tmp_path / "release")
    return tmp_path / "release"


def spoil_json(name, **changes):
    def spoil(folder):
        body = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**body, **changes}))

    return spoil


def spoil_arrays(change):
    def spoil(folder):
        path = folder / "student" / "parameters.npz"
        arrays = storage.read_arrays(path, "student-parameters")
        storage.write_arrays(path, "student-parameters", change(arrays))

    return spoil


def write_more(name, text):
    def spoil(folder):
        with (folder / name).open("a") as stream:
            stream.write(text)

    return spoil


def comment(folder):
    with zipfile.ZipFile(folder / "student" / "parameters.npz", "a") as archive:
        archive.comment = b"votes: 3 1 4"


def link(folder):
    (folder / "report.html").unlink()
    (folder / "report.html").symlink_to("/etc/hostname")


def pad(folder):
    path = folder / "student" / "parameters.npz"
    path.write_bytes(b"\0" * 9000 + path.read_bytes())


FIGURE = {"epsilon": 1.0, "order": None, "status": "publishable", "basis": "", "note": ""}
CARD, STUDENT = "student/MODEL_CARD.md", "student/student.json"
PLANTED = {
    "a file of votes": (lambda folder: (folder / "votes.npz").write_bytes(b""), "votes.npz is no part"),
    "a hidden file": (lambda folder: (folder / "student" / ".x").write_bytes(b""), "is no part"),
    "a link": (link, "is a link"),
    "a path": (write_more(CARD, "made in /home/ann/runs\n"), "holds a path"),
    "a path of Windows": (write_more(CARD, "made in C:\\runs\n"), "holds a path"),
    "a seed": (write_more(CARD, "seed: 7\n"), "holds a seed"),
    "a key": (write_more(CARD, "5f" * 32), "a digest or a key"),
    "the ledger's name": (write_more("report.html", "<p>ledger.jsonl</p>"), "speaks of 'ledger'"),
    "a comment of HTML": (write_more("report.html", "<!-- 3 1 4 -->"), "a comment of HTML"),
    "an embedded picture": (write_more("report.html", "<img src='data:image/png;base64,AA'>"), "an embedded"),
    "an unknown field": (spoil_json(STUDENT, notes="3 1 4"), "unknown field 'notes'"),
    "a cost of each query": (spoil_json("statement.json", costs=[0.1]), "unknown field 'costs'"),
    "a sensitive figure": (
        spoil_json("statement.json", figures={"exact": {**FIGURE, "status": "sensitive"}}),
        "sensitive figure 'exact'",
    ),
    "a sensitive figure called publishable": (
        spoil_json("statement.json", figures={"exact": FIGURE}),
        "sensitive figure 'exact'",
    ),
    "two statements": (spoil_json("student/statement.json", asked=1), "is not the statement.json"),
    "another program": (write_more("student/predict.py", "\n# x"), "is not the program"),
    "one more array": (spoil_arrays(lambda arrays: {**arrays, "votes": np.zeros(3, np.float32)}), "votes"),
    "stacked teachers": (
        spoil_arrays(lambda arrays: {name: np.stack([array] * 6) for name, array in arrays.items()}),
        "which the net has not",
    ),
    "an array too few": (spoil_arrays(lambda arrays: dict(list(arrays.items())[1:])), "lacks"),
    "numbers of another type": (
        spoil_arrays(lambda arrays: {name: array.astype(np.float64) for name, array in arrays.items()}),
        "is float64",
    ),
    "a comment of an archive": (comment, "carries a comment"),
    "bytes before an archive": (pad, "bytes larger than its arrays"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_what_is_planted_is_found(copy, what):
    plant, said = PLANTED[what]
    plant(copy)
    assert any(said in finding for finding in check.audit(copy)), check.audit(copy)
    with pytest.raises(PateError, match="must not be handed over"):
        check.check(copy)


def test_what_only_the_owner_knows_is_found_too(copy):
    run = honest_runs.whole()
    secrets = confidential.secrets(Subject(run))
    assert check.audit(copy, secrets) == []
    exact = storage.read_json(run.statement, "statement")["figures"]["exact"]["epsilon"]
    for planted in ("private-entry-003", "(patient-017)", f"epsilon {exact:.4f}", str(run.root.resolve())):
        before = (copy / CARD).read_text()
        (copy / CARD).write_text(f"{before}\n{planted}\n")
        assert check.audit(copy, secrets), planted
        (copy / CARD).write_text(before)


@pytest.mark.parametrize("form", ["as stored", "as nets see it", "in a column"])
def test_the_input_of_a_private_record_is_found(copy, form):
    run = honest_runs.whole()
    dataset = Subject(run).inputs.dataset
    record = dataset.private.inputs[17] if form == "as stored" else dataset.private.inputs[17:18]
    row = record if form == "as stored" else dataset.preprocessing.apply(record)[0]

    def hold(arrays):
        name, array = next((name, array) for name, array in arrays.items() if array.shape[:1] == (4,))
        held = array.copy()
        held[:, 2] = row
        held = (
            held if form == "in a column" else np.concatenate([row, held.reshape(-1)[4:]]).reshape(held.shape)
        )
        return {**arrays, name: held}

    secrets = confidential.secrets(Subject(run))
    assert check.audit(copy, secrets) == []
    spoil_arrays(hold)(copy)
    (found,) = check.audit(copy, secrets)
    assert "holds the inputs of 1 private records" in found


def test_a_release_by_itself_says_what_could_not_be_checked():
    found = verify.at(honest_runs.whole().release)
    assert not found.of("failed")
    assert any("that needs private/" in text for text in found.of("unchecked"))
    assert any("is what the mechanism gives" in text for text in found.of("passed"))


def test_the_zeros_and_ones_of_a_tables_scales_are_no_votes_of_two_classes():
    """One-hot groups have the offset 0 and the scale 1, and so has a run of equal labels."""
    labels = np.random.default_rng(0).integers(0, 2, (30, 40))
    labels[0, :32], labels[1, :32] = np.repeat([0, 1], 16), np.tile([1, 0], 16)
    labels[:, :2] = [0, 1]
    scales = json.dumps({"offset": [3.5, *[0.0] * 40], "scale": [2.25, *[1.0] * 40]})
    assert not traces.spells(traces.spelt(scales), labels)
    for spelled in (labels, labels.astype(float), labels.T):
        assert traces.spells(traces.spelt(json.dumps(spelled.tolist())), labels)


def test_a_page_of_two_classes_is_no_spelling_of_labels_but_one_teachers_labels_are():
    """Answers and labels of 60 shown images are some 200 zeros and ones, among which 16 agree by chance."""
    random = np.random.default_rng(1)
    for classes in (2, 2, 2, 10):
        shown, labels = random.integers(0, classes, (50, 200)), random.integers(0, classes, (250, 120))
        pages = [" ".join(map(str, page)) for page in shown]
        assert not any(traces.spells(page, labels) for page in pages)
        for page, teacher in zip(pages, labels, strict=False):
            assert traces.spells(f"{page} {' '.join(map(str, teacher))} {page}", labels)
