"""`pate student`: what is trained on the answers and published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from pate_jax import stages
from pate_jax.cli.printing import RunPath, say
from pate_jax.rundir import RunDirectory
from pate_jax.student import StudentConfig


def student(
    run: RunPath,
    config: Annotated[StudentConfig, arg(name="")],
    public: Path | None = None,
    test: Path | None = None,
    json: bool = False,
) -> None:
    """Train the student of a run on its answers and write release/.

    Args:
        run: the run directory.
        config: how the student learns.
        public: for votes made elsewhere: the public inputs that were voted on, in the order of the votes.
        test: for votes made elsewhere: a public labelled test part.
        json: print one JSON object.
    """
    directory = RunDirectory(run)
    with directory.writing():
        results = stages.teach(directory, config, public, test)
    say(results, json)
