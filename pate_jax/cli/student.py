"""`pate student` and `predict`: what is trained on the answers and published, and what it says of inputs.

The flags of a student are `--student.method NAME`, and a flag for each setting of any method. tyro would make
a subcommand of each method. Here one flag chooses it, and a setting that it does not take is refused with the
methods that do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import CascadeSubcommandArgs, FlagCreatePairsOff, OmitSubcommandPrefixes, Positional, arg
from tyro.constructors import (
    MISSING_NONPROP,
    ConstructorRegistry,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from pate_jax.cli.output import RunPath, say
from pate_jax.errors import PateError
from pate_jax.runs.settings import RunConfig, StudentFlags
from pate_jax.student.settings import KINDS, Auto, Settings, StudentConfig, named, names, with_method

REGISTRY = ConstructorRegistry()


@REGISTRY.struct_rule
def rule(info: StructTypeInfo) -> StructConstructorSpec | None:
    """How tyro reads a student's settings: flags over those of a default."""
    default = info.default
    if not isinstance(default, Settings):
        return None
    flags = {flag.name: flag for kind in KINDS.values() for flag in _flags(kind, default)}
    methods: Any = Literal[tuple(KINDS)]
    help_text = "; ".join(f"{name}: {_first_line(kind)}" for name, kind in KINDS.items())
    method = StructFieldSpec("method", methods, default.method, help_text)
    shown = {name: flag.default for name, flag in flags.items()}

    def choose(method: str, **values: Any) -> StudentConfig:
        return chosen(default, method, {name: v for name, v in values.items() if v != shown[name]})

    return StructConstructorSpec(choose, (method, *flags.values()))


def chosen(default: Settings, method: str, given: dict[str, Any]) -> StudentConfig:
    """The settings of a method: those that were given, over those of the default that it takes too.

    >>> from pate_jax.student import Auto
    >>> chosen(Auto(steps=9), "vat", {"radius": 0.1}).steps
    9
    """
    base = with_method(default, method)
    kept = {name: getattr(base, name) for name in names(type(base))}
    return named(method, **{**kept, **given})


def _flags(kind: type[Settings], default: Settings) -> list[StructFieldSpec]:
    """One for each setting of a method, as tyro makes them, with the default's value where it has one."""
    spec = ConstructorRegistry.get_struct_spec(StructTypeInfo.make(kind, MISSING_NONPROP, False))
    if not isinstance(spec, StructConstructorSpec):
        raise TypeError(f"{kind.__name__} is no dataclass")
    known = {name: getattr(default, name) for name in names(type(default))}
    return [dataclasses.replace(flag, default=known.get(flag.name, flag.default)) for flag in spec.fields]


def _first_line(kind: type[Settings]) -> str:
    return (kind.__doc__ or "").partition("\n")[0].rstrip(".")


def run_of(flags: Sequence[str], file: str) -> RunConfig:
    """The run that the flags of a file ask for."""
    config = (CascadeSubcommandArgs, OmitSubcommandPrefixes, FlagCreatePairsOff)
    return tyro.cli(RunConfig, prog=file, args=list(flags), config=config, registry=REGISTRY)


def student(
    run: RunPath,
    config: Annotated[StudentFlags, arg(name="")] = Auto(),  # noqa: B008
    public: Path | None = None,
    test: Path | None = None,
    show_public: bool = False,
    json: bool = False,
) -> None:
    """Train the student of a run on its answers and write release/.

    Args:
        run: the run directory.
        config: how the student learns.
        public: for votes made elsewhere: the public inputs that were voted on, in the order of the votes.
        test: for votes made elsewhere: a public labelled test part.
        show_public: for votes made elsewhere: the public inputs may go into release/ as they are.
        json: print one JSON object.
    """
    from pate_jax.runs import kinds, stages
    from pate_jax.runs.directory import RunDirectory

    directory = RunDirectory(run)
    teach = kinds.of(directory).teach
    with directory.writing():
        if teach is None:
            results = stages.teach(directory, config, public, test, show_public=show_public)
        elif public is None and test is None and not show_public:
            results = teach(directory, config)
        else:
            raise PateError(f"{run} knows its public data: leave out --public, --test and --show-public")
    say(results, json)


def predict(
    run: RunPath,
    inputs: Positional[Path],
    out: Path | None = None,
    id_column: str | None = None,
    encoder: str | None = None,
    export: Path | None = None,
    net: str | None = None,
) -> None:
    """Ask a published student about inputs; nothing but release/student/ is read.

    Args:
        run: the run directory, its release/ or its release/student/.
        inputs: .npz with an array `inputs`, a table (.csv, .parquet, .xlsx), or a folder of images.
        out: predictions.csv or predictions.npz; unset: the first ten on the terminal.
        id_column: column of a table that names its rows; unset: one that is called as ids are.
        encoder: file or folder of the encoder of texts or photos, where no package holds it.
        export: write the student as one ONNX file too, and check its answers on up to 1,000 of these inputs.
        net: module of a student whose net is somebody's own, as package.module:Class: it is imported and
            answers, and --export needs it; unset: the student's own program answers, and nothing is imported.
    """
    from pate_jax.student import Student, graph, predictions, serving, several

    if out is not None:
        predictions.check_out(out)
    if several.find(run) is not None:
        if export is not None:
            raise PateError(f"--export {export} writes one student: name the folder of one label's student")
        if net is not None:
            raise PateError(f"--net {net} is for one student: name the folder of one label's student")
        _predict_labels(run, inputs, out, id_column, encoder)
        return
    served = Student.load(run, net, encoder=encoder)
    asked, ids = serving.read_inputs(served, inputs, id_column)
    probabilities = served(asked)
    if export is not None:
        print(graph.export(served, run, export, inputs, asked, probabilities))
    if out is not None:
        predictions.write(out, served, probabilities, ids)
        print(f"{len(asked)} predictions in {out}")
    else:
        predictions.show(served, probabilities, ids)


def _predict_labels(
    run: Path, inputs: Path, out: Path | None, id_column: str | None, encoder: str | None
) -> None:
    """Ask the students of several labels."""
    from pate_jax.student import serving, several

    students = several.Students.load(run, encoder)
    asked, ids = serving.read_inputs(students.first, inputs, id_column)
    found = students(asked)
    if out is None:
        several.show(students, found, ids)
        return
    several.write(out, students, found, ids)
    print(f"{len(asked)} predictions of {len(found)} labels in {out}")
