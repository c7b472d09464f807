"""Write `release/`, the folder that may be handed over; `check.py` checks that it may."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from pate_jax.accounting.statement import NOT_PRIVATE
from pate_jax.data import encoders, forms, texts
from pate_jax.data.encoders import NOT_COVERED
from pate_jax.data.encoders.encoder import FILE, GET, digest
from pate_jax.data.encoders.lite import Lite
from pate_jax.runs import measured
from pate_jax.runs.report import measures_page, numbers, words
from pate_jax.runs.report.html import interval
from pate_jax.student import Student
from pate_jax.system import storage

ENCODER = f"student/{FILE}"  # of photos
_IMAGE = ("height", "width", "channels")


def write(folder: Path, student: Student, statement: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Write student, statement, model card and predict.py; `statement` must hold publishable figures only.

    `facts` tells what the card says of the run: private, data, teachers, student_accuracy, and, where known,
    method, selection, label_accuracy and attacked.
    """
    home, facts = folder / "student", measured.published(facts)
    student.save(home)
    storage.write_json(folder / "statement.json", "statement", statement)
    storage.write_json(home / "statement.json", "statement", statement)
    write_programs(folder, student)
    storage.write_bytes(home / "MODEL_CARD.md", model_card(student, statement, facts).encode())


@cache
def programs() -> dict[str, str]:
    """The programs by their places: predict.py runs a student with NumPy alone, and encoder.py its encoder.

    >>> [("import jax" in text, "from pate_jax" in text) for text in programs().values()]
    [(False, False), (False, False)]
    """
    homes = {"predict.py": "pate_jax.student.released", "encoder.py": "pate_jax.data.encoders"}
    return {
        f"student/{name}": resources.files(home).joinpath(name).read_text(encoding="utf-8")
        for name, home in homes.items()
    }


def write_programs(folder: Path, student: Student) -> None:
    """Write the programs that a student needs, and its encoder if a package of weights holds that.

    The program of a net of one's own lies beside its numbers already. An encoder of texts is read from its
    package, and one of an owner's is named by its digest.
    """
    needed = [*texts.seen(student.columns)]
    if student.program is not None:
        return
    for name, text in programs().items():
        if needed or name != "student/encoder.py":
            storage.write_bytes(folder / name, text.encode())
    for one in needed:
        if isinstance(found := encoders.same(one) if not one.recipe else None, Lite):
            storage.write_bytes(folder / ENCODER, found.content)


def named_encoders(students: list[Path]) -> set[str]:
    """The digests of the encoders that students name, which are public."""
    return {one.digest for home in students for one in texts.seen(Student.load(home).columns)}


def strange_encoder(folder: Path, named: set[str]) -> Iterator[str]:
    """Whether the encoder in a release is none of these."""
    if (folder / ENCODER).is_file():
        found = digest(storage.read_bytes(folder / ENCODER))
        if found not in named:
            yield f"{ENCODER} has another digest than the encoder that student.json names"


def model_card(student: Student, statement: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """What the student is, what it cost and what that does not cover, for whoever is handed it."""
    shown = student.class_names[:20]
    names = ", ".join(map(plain, shown)) + " ..." * (len(student.class_names) > len(shown))
    sections = {
        "What it says, and of what": [
            f"Task: {_task(student, names)}.",
            *reads(student),
        ],
        "Privacy": promised(statement, facts),
        "How it was made": [
            f"Data: {facts['data']}.",
            f"Trained on: {learned_from(statement, facts)}.",
            _bought(statement, facts),
            f"Net: {json.dumps(student.description)}; {_size(student):,} parameters.",
            *_holds(student),
            *([] if student.program is None else [_OF_OWN_NET]),
        ],
        "How good it is": [
            f"{numbers.told(facts)}."
            if "numbers" in facts
            else f"Accuracy on public test data: {_measured(facts)}.",
            *measures_page.told(facts),
            *measures_page.told_bought(facts),
        ],
    }
    tables = "".join(_table(heads, rows) for heads, rows in measures_page.tables(facts))
    return card(sections, statement, facts, student, tables)


def reads(student: Student) -> list[str]:
    """The lines about inputs and their encoder."""
    known = [f"Encoder: {texts.described(one)}; {NOT_COVERED}." for one in texts.seen(student.columns)]
    return [f"Inputs: {takes(student)}.", *known]


def promised(statement: Mapping[str, Any], facts: Mapping[str, Any]) -> list[str]:
    """The lines about privacy."""
    return [
        f"Privacy: {statement['model_card_line']}",
        *([f"All releases together: {statement['trade_off']['in_words']}."] if facts["private"] else []),
        *(str(facts[name]) for name in ("others", "attacked") if facts.get(name)),
    ]


def card(
    sections: Mapping[str, Sequence[str]],
    statement: Mapping[str, Any],
    facts: Mapping[str, Any],
    student: Student,
    tables: str = "",
) -> str:
    """A whole card: its lists by title, and what holds for each release of this kind of student."""
    alarms = [*([facts["trial"]] if "trial" in facts else []), *([] if facts["private"] else [NOT_PRIVATE])]
    warning = "".join(f"**{alarm}**\n\n" for alarm in alarms)
    lists = {title: "".join(f"- {line}\n" for line in lines) for title, lines in sections.items()}
    body = "".join(f"## {title}\n\n{listed}\n" for title, listed in lists.items())
    subject = f": {plain(str(facts['predicts']))}" if "predicts" in facts else ""
    front = _front_matter(student, facts)
    return f"{front}{warning}# Model card{subject}\n\n{body}{tables}{_limits(student, statement)}"


def _front_matter(student: Student, facts: Mapping[str, Any]) -> str:
    """What model hubs read of a card, as YAML: what it is for, and figures of public test data alone."""
    task = _hub_task(student)
    tags = ["differential-privacy", "pate", *(["not-private"] if not facts["private"] else [])]
    tags += ["trial"] if "trial" in facts else []
    lines = ["# license: yours to choose; this file names none", "library_name: pate_jax"]
    lines += [f"pipeline_tag: {task}", "tags:", *(f"- {tag}" for tag in tags)]
    if figures := list(_figures(facts)):
        lines += ["model-index:", "- name: student", "  results:", f"  - task: {{type: {task}}}"]
        lines += [f"    dataset: {{type: test, name: {json.dumps(facts['data'])}}}", "    metrics:"]
        lines += [
            f"    - {{type: {kind}, value: {value:.4f}, name: {json.dumps(name)}}}"
            for kind, value, name in figures
        ]
    return "".join(f"{line}\n" for line in ("---", *lines, "---", ""))


def _hub_task(student: Student) -> str:
    """The name that model hubs have for what a student does."""
    if student.target is not None:
        return "tabular-regression"
    read = [column.encoder is not None for column in student.columns]
    photos = any(encoders.of_photos(known.name) for known in texts.seen(student.columns))
    if photos or len(student.description["input_shape"]) == len(_IMAGE):
        return "image-classification"
    return "text-classification" if read and all(read) else "tabular-classification"


def _figures(facts: Mapping[str, Any]) -> Iterator[tuple[str, float, str]]:
    """Kind, value and name of what was measured on public test data."""
    if facts.get("student_accuracy") is not None:
        yield "accuracy", facts["student_accuracy"], "accuracy"
    numbers_of = facts.get("numbers", {})
    parts = [("", facts.get("measures") or {})]
    parts += [(f" of {label}", one["figures"] or {}) for label, one in facts.get("labels", {}).items()]
    parts += [("", one) for one in numbers_of.get("figures", []) if one["name"] == numbers.THIS]
    for whose, found in parts:
        for kind, field in (("accuracy", "accuracy"), ("roc_auc", "auroc"), ("r2", "r2"), ("mae", "error")):
            if field in found and found[field][0] is not None:
                yield kind, found[field][0], f"{kind}{whose}"


def _limits(student: Student, statement: Mapping[str, Any]) -> str:
    """What the guarantee covers and what not, and how the student is used."""
    asked = "voters" if "releases" in statement or "shared" in statement else "teachers"
    declared = ", as declared by the makers of the votes" if statement.get("declared") else ""
    covers = _COVERS.format(whom=_WHOM[statement["relation"]], declared=declared, asked=asked)
    if "training" in statement:  # no public input had part in it
        covers = "\n".join(line for line in covers.split("\n") if not line.startswith("- the public inputs"))
    return covers + _used(student)


def _holds(student: Student) -> list[str]:
    """How many public inputs a student holds as they are, if any."""
    shapes = student.shapes()
    examples = shapes.get("examples", shapes.get("patches/examples"))
    return [] if examples is None else [f"Holds {examples[0]:,} of the public inputs as they are."]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown.

    >>> print(_table(("a", "b"), [("1", "x|y")]))
    | a | b |
    |---|---|
    | 1 | x\\|y |
    <BLANKLINE>
    <BLANKLINE>
    """
    lines = [[*map(plain, line)] for line in (heads, *rows)]
    first, *others = (f"| {' | '.join(line)} |\n" for line in lines)
    return f"{first}|{'---|' * len(heads)}\n{''.join(others)}\n"


def plain(text: str) -> str:
    """A name as Markdown that shows it as it is: no markup, no HTML, and one line.

    >>> print(plain("<b>a|b</b>"), plain("one_two"), plain("two" + chr(10) + "lines"))
    &lt;b&gt;a\\|b&lt;/b&gt; one\\_two two\\\\nlines
    """
    visible = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )
    return html.escape(re.sub(r"([\\`*_{}\[\]#|~!$])", r"\\\1", visible), quote=False)


_WHOM = {
    "record": "one record",
    "user": "one user",
    "contents": "the contents of one record",
    "party": "all that one party holds",
}
_COVERS = """## What the guarantee covers, and what it does not

It bounds what this student, and anything computed from it, reveals of {whom} of the private data{declared}.

It does not cover

- the public inputs that the {asked} were asked about and the student was trained on;
- settings that somebody chose by looking at private data, and other runs on the same data: costs add up;
- what is true of everybody: a student that knows that smoking harms says so of every smoker;
- wrong or unfair answers; the accuracy above is an average over the test data, not a promise for one input.

"""
_OWN = "its file or folder, and the packages onnxruntime and tokenizers"
_ALONE = """Needs NumPy{needs} only, and no file but those in this folder:

    python predict.py {file}{more} --out labels.csv

"""
_OF_OWN_NET = (
    "The net is its makers' own, and its source is no part of this folder: program.stablehlo computes what "
    "it says, and parameters.safetensors holds its numbers."
)
_BY_JAX = """Needs JAX and the package safetensors only, for arrays; `inputs` are float32 [n, {shape}]:

    from pathlib import Path
    from jax import export
    from safetensors.numpy import load_file

    program = export.deserialize(bytearray(Path("program.stablehlo").read_bytes()))
    probabilities = program.call(load_file("parameters.safetensors"), inputs)

"""
_USE = """\
With pate_jax: `pate predict FOLDER {file}{more}`, or `pate_jax.Student.load(FOLDER).predict_proba(inputs)`,
which takes a data frame, columns by name, an array or a file.
"""


def _used(student: Student) -> str:
    """How the student is asked, without this package and with it."""
    known = next(texts.seen(student.columns), None)
    file, needs, more = "inputs.csv" if student.columns else "inputs.npz", "", ""
    if known is not None:
        photos = encoders.of_photos(known.name)
        file = "PHOTOS" if photos else file
        needs = ", pillow and onnxruntime" if photos else f" and the encoder ({GET.get(known.name, _OWN)})"
        more = " --encoder ENCODER" if known.recipe else ""
    alone = _ALONE.format(needs=needs, file=file, more=more)
    if student.program is not None:
        alone = _BY_JAX.format(shape=", ".join(map(str, student.description["input_shape"])))
    return "## Use\n\n" + alone + _USE.format(file=file, more=more)


def learned_from(statement: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """What a student has learned from."""
    method = f" by the method {facts['method']}" if facts.get("method") else ""
    public = "public inputs, their labels" if facts.get("learned_from_public_labels") else "public inputs"
    if "training" in statement:
        return "the private records themselves, by DP-SGD: clipped gradients with noise"
    if "releases" in statement:
        by = f",{method}" if method else ""
        return f"{public} and noisy tables of {words.voters(facts)}{by}; no private record"
    if "shared" in statement:
        return f"public inputs and what {facts['parties']} parties opened together{method}; no private record"
    return f"{public} and the answers of {facts['teachers']} teachers{method}; no private record"


def _task(student: Student, names: str) -> str:
    if student.target is not None:
        name, low, high = student.target
        return f"{plain(name)}, a number from {low:.6g} to {high:.6g}"
    return f"{len(student.class_names)} classes: {names}"


def _bought(statement: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    if "training" in statement:
        return "Labels: those of the private records; no public input was labelled."
    if "explained" in facts:
        return f"How: {facts['explained']}"
    if "releases" in statement:
        right = _share(facts.get("label_accuracy"), "no public labels to compare them with")
        return f"Labels: of {words.asked(facts)}, at no cost beyond that of the tables; right: {right}."
    if statement.get("shared", {}).get("voters") == "sums":
        right = _share(facts.get("label_accuracy"), "no public labels to compare them with")
        return f"Labels: of all {facts['queries']:,} public inputs, from one noisy table; right: {right}."
    chosen = f", chosen by {facts['selection']}" if facts.get("selection") else ""
    right = _share(facts.get("label_accuracy"), "no public labels to compare them with")
    if facts.get("counts"):
        of = f"{statement['answered']} of {statement['asked']} asked"
        return f"Bought: all noisy counts, for {of}{chosen}; right are of the largest: {right}."
    return f"Labels bought: {statement['answered']} of {statement['asked']} asked{chosen}; right: {right}."


def _measured(facts: Mapping[str, Any]) -> str:
    seen, told = facts.get("seen"), _share(facts.get("student_accuracy"), "no public test part")
    if facts.get("student_accuracy") is None or seen is None:
        return told
    return f"{told} of {seen['inputs']:,} inputs (95% interval: {interval(seen['low'], seen['high'])})"


def _share(accuracy: float | None, otherwise: str) -> str:
    return f"not measured, {otherwise}" if accuracy is None else f"{accuracy:.2%}"


_MAY_MISS = "values may be missing (blank, NA, NaN or null): student.json has the number taken for each"


def takes(student: Student) -> str:
    """What inputs a student takes."""
    shape = "x".join(map(str, student.description["input_shape"]))
    if student.columns:
        if any(encoders.of_photos(known.name) for known in texts.seen(student.columns)):
            return "photos, as a folder of images"
        names = ", ".join(plain(column.name) for column in student.columns)
        fills = any(column.filling is not None for column in student.columns)
        dates = [column for column in student.columns if column.form not in (forms.NUMBER, forms.BOOLEAN)]
        names += "".join(f"; {plain(one.name)} is free text" for one in student.columns if one.encoder)
        written = "".join(f"; {plain(column.name)} is {plain(forms.told(column.form))}" for column in dates)
        return f"a table with the columns {names}{written}" + f"; {_MAY_MISS}" * fills
    return f"arrays [n, {shape}]" + (" of pixels from 0 to 255" if student.dtype == "uint8" else "")


def _size(student: Student) -> int:
    return sum(math.prod(shape) for shape in student.shapes().values())
