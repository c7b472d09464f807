"""`pate student` and `predict`: what is trained on the answers and published, and what it says of inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from pate_jax.cli.output import RunPath, say
from pate_jax.errors import PateError
from pate_jax.runs.settings import StudentFlags
from pate_jax.student.settings import Auto


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
    from pate_jax.runs import stages
    from pate_jax.runs.crowds import inputs
    from pate_jax.runs.crowds import stages as crowd_stages
    from pate_jax.runs.directory import RunDirectory

    directory = RunDirectory(run)
    with directory.writing():
        if not inputs.is_crowd(directory):
            results = stages.teach(directory, config, public, test, show_public=show_public)
        elif public is None and test is None and not show_public:
            results = crowd_stages.teach(directory, config)
        else:
            raise PateError(f"{run} knows its public data: leave out --public, --test and --show-public")
    say(results, json)


def predict(
    run: RunPath, inputs: Positional[Path], out: Path | None = None, id_column: str | None = None
) -> None:
    """Ask a published student about inputs; nothing but release/student/ is read.

    Args:
        run: the run directory, its release/ or its release/student/.
        inputs: .npz with an array `inputs`, .csv or .parquet for a student of tables, or a folder of images.
        out: predictions.csv or predictions.npz; unset: the first ten on the terminal.
        id_column: column of a table that names its rows; unset: one that is called as ids are.
    """
    from pate_jax.student import Student, serving

    if out is not None:
        serving.check_out(out)
    served = Student.load(run)
    asked, ids = serving.read_inputs(served, inputs, id_column)
    probabilities = served(asked)
    if out is not None:
        serving.write_predictions(out, served, probabilities, ids)
        print(f"{len(asked)} predictions in {out}")
    else:
        serving.show_predictions(served, probabilities, ids)
