"""Reads every file of `release/` and says whether it may be published.

An auditor who has only `release/` can make all of these checks. The owner, who also has the private files,
can pass the content that must not be in it as `Secrets`.
"""

from __future__ import annotations

import html
import json
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pate_jax.accounting.statement import NOT_PRIVATE
from pate_jax.data import duplicates
from pate_jax.data.trial_mark import SENTENCE
from pate_jax.errors import PateError
from pate_jax.runs.release import traces, write
from pate_jax.runs.release.findings import Finding, failed, judged, passed, unchecked
from pate_jax.runs.report import attacks
from pate_jax.student import Student, exported, serving
from pate_jax.system import storage

# All files that a release may have, and all fields that each JSON file may have.
FILES = frozenset(
    {
        "statement.json",
        "report.html",
        "student/parameters.npz",
        "student/parameters.safetensors",
        "student/program.stablehlo",
        "student/student.json",
        "student/MODEL_CARD.md",
        "student/statement.json",
        *write.programs(),
        write.ENCODER,
    }
)
_STATEMENT = frozenset(
    {
        *("artefact", "schema", "warning", "asked", "answered", "delta", "relation", "relation_in_words"),
        *("charged", "mechanism", "private", "slack", "figures", "status", "model_card_line", "trade_off"),
        "trial",
        *(
            "teachers",
            "classes",
            "declared",
            "releases",
            "tuned",
            "training",
            "voters",
            "shared",
            "audiences",
            "headcount",
        ),
    }
)
_BINARY = (".npz", ".onnx", ".safetensors")
_LABELS = "labels.json"  # of several labels: which folder is whose student
FIELDS = {
    "statement.json": _STATEMENT,
    "student/statement.json": _STATEMENT,
    "student/student.json": frozenset(
        {
            *("artefact", "schema", "net", "preprocessing", "class_names"),
            *("temperature", "dtype", "columns", "target"),
        }
    ),
    f"student/{_LABELS}": frozenset({"artefact", "schema", "folders"}),
}
FIGURE = frozenset({"epsilon", "order", "status", "basis", "note"})
CURVE = frozenset({"mu", "strays", "epsilon", "guess", "false_alarms", "caught", "in_words"})
MAY_LEAVE = frozenset({"data_independent", "sanitised", "added_or_removed"})
_WORDS = ("sensitive", "votes.npz", "teacher_labels", "keys.json", "ledger", "private/", "seed=")
_PATTERNS = {
    "a path": re.compile(r"(?<![\w.:/<])/(?:home|Users|root|tmp|var|mnt|data|srv|opt)/\w|\b[A-Za-z]:\\\w"),
    "a seed": re.compile(r"\bseed\W{1,4}\d", re.IGNORECASE),
    "a digest or a key": re.compile(r"\b[0-9a-f]{32,}\b"),
    "a comment of HTML": re.compile(r"<!--"),
    "an embedded file": re.compile(r"data:(?!,)[\w/+.-]*[;,]"),
}
_ALARM = NOT_PRIVATE.partition(":")[0]
_PARAMETERS, _PAGE = "student/parameters.npz", "report.html"
_COLON = ":"  # between the name of a column and its value
_LARGEST = 1 << 31  # the most bytes of one file
_NUMBERS = (_PARAMETERS, f"student/{exported.TENSORS}", f"student/{exported.PROGRAM}")
_OF_A_LABEL = re.compile(
    r"^student/[^/]+/(student\.json|parameters\.(npz|safetensors)|program\.stablehlo)$"
)  # of several


@dataclass(frozen=True)
class Secrets:
    """The owner's private content: texts, names, arrays of numbers, and private inputs."""

    texts: Mapping[str, str] = field(default_factory=dict)  # from a description to the text itself
    names: Set[str] = frozenset()  # ids, searched as whole words only
    arrays: Callable[[], Iterable[tuple[str, np.ndarray]]] = tuple  # one by one, as they may be many
    inputs: Callable[[], Iterable[np.ndarray]] | None = None  # in each form that a file may have; if known
    public: Callable[[], Shown] | None = None  # public inputs that may not go out; None where all may


class Shown(NamedTuple):
    """Public inputs that may not go out as they are: in each form, and as a page would spell them out."""

    forms: Iterable[np.ndarray]
    records: Iterable[Mapping[str, str]]  # of a table, by column


def audit(folder: Path, secrets: Secrets | None = None) -> list[str]:
    """Everything in a release that must not be there; an empty list if there is nothing."""
    return [finding.text for finding in look(folder, secrets) if finding.outcome == "failed"]


def check(folder: Path, secrets: Secrets | None = None) -> None:
    """Raise an error if the audit finds anything."""
    faults = audit(folder, secrets)
    if faults:
        raise PateError(f"{folder} must not be handed over: {'; '.join(faults)}")


def look(folder: Path, secrets: Secrets | None = None) -> Iterator[Finding]:
    """All findings about the content of a release."""
    files = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    yield from judged(_strangers(folder, files), "only files that belong to a release are there")
    plain = [path for path in files if not path.is_symlink()]
    known = [path for path in plain if _belongs(folder, path.relative_to(folder).as_posix())]
    texts = {path.relative_to(folder).as_posix(): _text(path) for path in known if _is_text(path)}
    texts = {name: text for name, text in texts.items() if text != write.programs().get(name)}
    texts[_PAGE], shown = traces.parted(texts.get(_PAGE, ""))
    yield from judged(traces.faults(_PAGE, shown), "its pictures are few, small, and nothing but pixels")
    yield from judged(_words(texts), "no file speaks of votes, ledger, keys, seeds, digests or paths")
    yield from judged(_fields(texts), "JSON files have the agreed fields only, and no sensitive figure")
    if homes := traces.homes(folder):
        named = write.named_encoders(homes)
        said = "it holds no encoder but the one it names" if named else "it names no encoder, and holds none"
        yield from judged(write.strange_encoder(folder, named), said)
        arrays = (fault for home in homes for fault in _arrays(home))
        yield from judged(
            arrays, "the arrays are the parameters of one student" + ", for each label" * (len(homes) > 1)
        )
    else:
        yield unchecked("there is no student yet: run `pate student`")
    if secrets is None:
        yield unchecked("that no id, path, vote or teacher of the run is in it: that needs private/")
    else:
        yield from judged(_known_secrets(folder, texts, secrets), _about(secrets))
        if secrets.inputs is None:
            yield unchecked("that the student holds no private input: the private records are not at hand")
        else:
            held = [*_inputs(folder, secrets.inputs()), *traces.private(shown, secrets.inputs())]
            yield from judged(held, "no array and no picture holds the input of a private record")
        if secrets.public is not None:
            yield from judged(
                _public(folder, texts[_PAGE], shown, secrets.public()),
                "no array, picture or page shows a public input, as --show-public was not given",
            )


def _about(secrets: Secrets) -> str:
    return (
        f"none of {len(secrets.texts)} secret texts and {len(secrets.names):,} private names is in it, "
        "and no votes and no teacher are among its arrays"
    )


def _strangers(folder: Path, files: list[Path]) -> Iterator[str]:
    for path in files:
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            yield f"{name} is a link to somewhere else"
        elif not _belongs(folder, name):
            yield f"{name} is no part of a release"
        elif not path.is_file() or path.stat().st_size > _LARGEST:
            yield f"{name} is no plain file of at most {_LARGEST:,} bytes"


def _belongs(folder: Path, name: str) -> bool:
    """Whether a release has a file of this name: that of several labels has a folder for each student."""
    several = (folder / "student" / _LABELS).is_file()
    if several and (name == f"student/{_LABELS}" or _OF_A_LABEL.match(name)):
        return True
    return name in FILES and not (several and name in ("student/student.json", *_NUMBERS))


def _is_text(path: Path) -> bool:
    return path.suffix not in _BINARY


def _text(path: Path) -> str:
    """The text of a file; that of a program is told by JAX, without the constants, which are arrays."""
    if path.name == exported.PROGRAM:
        return exported.constants(exported.read_program(path.parent).text)[0]
    try:
        return storage.read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise PateError(f"{path} is no text in UTF-8: {error}") from error


def _words(texts: Mapping[str, str]) -> Iterator[str]:
    for name in texts.keys() & write.programs():
        yield f"{name} is not the program that this version of pate_jax releases"
    for name, text in texts.items():
        yield from (f"{name} says {fault}" for fault in attacks.beyond(html.unescape(text)))
        yield from (f"{name} speaks of {word!r}" for word in _WORDS if word in text)
        for what, pattern in _PATTERNS.items():
            if match := pattern.search(text):
                yield f"{name} holds {what}: {match.group()[:40]!r}"


def _fields(texts: Mapping[str, str]) -> Iterator[str]:
    for name, text in texts.items():
        allowed = FIELDS.get("student/student.json" if _OF_A_LABEL.match(name) else name)
        if allowed is not None:
            body = storage.parse_json(text, name)
            yield from (f"{name} has the unknown field {one!r}" for one in sorted(set(body) - allowed))
    if "statement.json" in texts:
        body = storage.parse_json(texts["statement.json"], "statement.json")
        yield from _figures(body.get("figures"))
        if not (isinstance(curve := body.get("trade_off"), dict) and set(curve) <= CURVE):
            yield f"statement.json says other things of the best guesser than {', '.join(sorted(CURVE))}"
    if texts.get("student/statement.json", texts.get("statement.json")) != texts.get("statement.json"):
        yield "student/statement.json is not the statement.json of the release"


def _figures(figures: Any) -> Iterator[str]:
    if not isinstance(figures, dict):
        yield "statement.json has no figures"
        return
    for name, figure in figures.items():
        status = figure.get("status") if isinstance(figure, dict) else None
        if name not in MAY_LEAVE or status != "publishable":
            yield f"statement.json holds the sensitive figure {name!r}"
        elif set(figure) - FIGURE:
            more = sorted(set(figure) - FIGURE)
            yield f"statement.json says more of {name!r} than may be published: {more}"


def _arrays(home: Path) -> Iterator[str]:
    """Arrays that are not exactly the parameters of the net that student.json describes."""
    student = Student.load(home)
    shapes, wanted = student.shapes(), serving.shapes_wanted(student)
    file, arrays = next(iter(traces.held(home).items()))
    yield from (
        f"student/{file} holds {name} of shape {shape}, which the net has not"
        for name, shape in shapes.items()
        if shape != wanted.get(name)
    )
    yield from (f"student/{file} lacks {name}" for name in wanted if name not in shapes)
    for name, array in arrays.items():
        if (array.dtype != np.float32 and student.program is None) or not np.isfinite(array).all():
            yield f"student/{file}: {name} is {array.dtype} and not finite float32 numbers"
    if student.program is None:
        yield from _hidden(home / file)


def _hidden(path: Path) -> Iterator[str]:
    """Bytes of an archive that belong to no array: comments, and bytes between or after its members."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if archive.comment or any(one.comment for one in members):
            yield f"student/{path.name} carries a comment"
        if len({one.filename for one in members}) != len(members):
            yield f"student/{path.name} names an array twice"
        held = sum(one.compress_size + 2 * len(one.filename.encode()) for one in members)
        room = 256 * (len(members) + 1)  # headers, one for each member and one at the end
        if path.stat().st_size > held + room:
            yield f"student/{path.name} is {path.stat().st_size - held:,} bytes larger than its arrays"


def _names(text: str, secret: str) -> bool:
    """Whether a text holds a secret; a number must begin there, not in the middle of a longer one.

    >>> _names("offset 10.99232", "0.9923"), _names("epsilon 0.99232", "0.9923"), _names("xab1cy", "ab1c")
    (False, True, True)
    """
    if not re.fullmatch(r"\d+\.\d+(e-?\d+)?", secret):
        return secret in text
    return re.search(rf"(?<![\d.]){re.escape(secret)}", text) is not None


def _said(text: str) -> set[str]:
    """The words of a text, but for numbers after a name in JSON: ids may be numbers, as counts of voters are.

    >>> found = _said('{"voters": 11000, "records": ["12000", 13000]} of (14000).')
    >>> [one in found for one in ("11000", "12000", "13000", "14000")]
    [False, True, True, True]
    """
    text = re.sub(r'(?<=":)\s*-?\d+(\.\d+)?(e[+-]?\d+)?(?=\s*[,}])', " ", text)
    words = set(re.findall(r"[^\s\"'<>(),;|`]+", text))
    return words | {word.strip(".:[]{}") for word in words}


def _known_secrets(folder: Path, texts: Mapping[str, str], secrets: Secrets) -> Iterator[str]:
    for name, text in texts.items():
        plain = html.unescape(text)
        yield from (f"{name} holds {what}" for what, secret in secrets.texts.items() if _names(plain, secret))
        yield from (f"{name} names the private {one!r}" for one in sorted(_said(plain) & secrets.names)[:3])
    spelt = {name: traces.spelt(text) for name, text in texts.items()}
    held = traces.arrays(folder)
    for what, array in secrets.arrays():
        if array.dtype.kind in "iu":
            yield from (
                f"{name} spells out {what}" for name, text in spelt.items() if traces.spells(text, array)
            )
        for name, parameters in held.items():
            if traces.holds(parameters, array):
                yield f"{name} is {what}"


def _inputs(folder: Path, forms: Iterable[np.ndarray], whose: str = "private records") -> Iterator[str]:
    """Arrays that contain these inputs, by their digests: one after another, or one in each column."""
    kept = traces.arrays(folder)
    for form in forms:
        flat = form.reshape(len(form), -1).astype(np.float32)
        known = set(duplicates.digests(flat))
        for name, parameters in kept.items():
            pieces = traces.pieces(parameters.astype(np.float32), flat.shape[1])
            if held := int(duplicates.repeats(pieces, known).sum()):
                yield f"{name} holds the inputs of {held} {whose}"


def _public(folder: Path, page: str, shown: list[np.ndarray], public: Shown) -> Iterator[str]:
    """Public inputs in a release that were not to go out."""
    kept = list(public.forms)
    yield from _inputs(folder, kept, "public inputs that may not go out")
    yield from traces.private(shown, kept, "public inputs that may not go out")
    words = _plain(page)
    held = sum(spelled(record) in words for record in public.records) if _COLON in words else 0
    if held:
        yield f"{_PAGE} spells out {held} public inputs that may not go out"


def _plain(page: str) -> str:
    """The words of a page without its tags, each after one blank."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def spelled(record: Mapping[str, str]) -> str:
    """A row of a table in the words of a page.

    >>> spelled({"age": "30", "town": "Oslo"})
    'age: 30 town: Oslo'
    """
    return " ".join(" ".join(f"{name}{_COLON} {value}".split()) for name, value in record.items())


def agrees(folder: Path) -> Iterator[Finding]:
    """Whether the statement, the card and the page of a release agree on the guarantee."""
    statement = storage.read_json(folder / "statement.json", "statement")
    line = str(statement.get("model_card_line"))
    private = statement.get("private") is True
    found = statement.get("trade_off")
    curve = str(found.get("in_words")) if isinstance(found, dict) else ""
    of_crowd = "releases" in statement or statement.get("shared", {}).get("voters") == "sums"
    bought = f"{statement.get('answered')} of {statement.get('asked')} asked"
    if not private and _ALARM not in json.dumps(statement):
        yield failed("statement.json is of a seeded run and does not say NOT PRIVATE")
    if statement.get("trial", SENTENCE) != SENTENCE:
        yield failed("statement.json says something else of a trial than this version does")
    for name in ("report.html", "student/MODEL_CARD.md"):
        path = folder / name
        if not path.exists():
            yield unchecked(f"{name} is not there")
            continue
        text = html.unescape(_text(path))
        if line not in text:
            yield failed(f"{name} does not carry the guarantee of statement.json word for word")
        elif private and (not curve or curve not in text):
            yield failed(f"{name} does not say what the best guesser can reach, as statement.json does")
        elif name.endswith(".md") and not (of_crowd or "training" in statement) and bought not in text:
            yield failed(f"{name} does not say that {bought} were answered, as statement.json does")
        elif (_ALARM in text) == private:
            yield failed(f"{name} and statement.json disagree on whether the run is private")
        elif (SENTENCE in text) != ("trial" in statement):
            yield failed(f"{name} and statement.json disagree on whether the run is a trial")
        else:
            yield passed(f"{name} carries the guarantee of statement.json word for word")
