"""`pate compare`: which method serves one's own data best at an epsilon."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import OmitArgPrefixes

from pate_jax.runs.settings import CUSTOMARY_EPSILON, STROKES, DataChoice
from pate_jax.system import progress

if TYPE_CHECKING:
    from pate_jax.sweep.compare import Contender, Ground
    from pate_jax.sweep.results import Row


def compare(
    data: Annotated[DataChoice, OmitArgPrefixes],
    epsilon: float = CUSTOMARY_EPSILON,
    delta: float = 1e-5,
    methods: tuple[str, ...] = (),
    draws: int = 1,
    minutes: float = 5.0,
    judged_on: Literal["public", "synthetic"] | None = None,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Compare methods on the same records at one epsilon, and recommend one: for a trial, not a release.

    It needs a labelled test part: --test, or the parts that `pate split` makes. Repeat the same command to
    go on after a stop. Unless --judged-on says that the records are no private ones, the figures are
    SENSITIVE, and choosing a method by them is covered by no epsilon.

    Args:
        data: the records, public inputs and test rows.
        epsilon: what each method may cost, for one record that is changed or left out.
        delta: the delta of the guarantee.
        methods: which methods; unset: all.
        draws: how often shards, noise and nets are drawn; more tell closer methods apart.
        minutes: CPU minutes that one method may take, after which it is left out.
        judged_on: whose records these are, if nobody's privacy is at stake; unset: private, or synthetic.
        out: the folder of what was measured; unset: compare/ and the name of the data set.
        json: print one JSON object.
    """
    from pate_jax.runs.inputs import open_data
    from pate_jax.sweep import results
    from pate_jax.sweep.compare import Ground, named
    from pate_jax.sweep.compare.cells import cells_of, measure
    from pate_jax.sweep.compare.recommendation import warning

    contenders = named(methods)
    wanted = cells_of(contenders, [epsilon], draws)
    ground = Ground(open_data(data.drawn(STROKES)), delta)
    kind = judged_on or ("synthetic" if ground.dataset.synthetic else "private")
    choosing = sum(one.private for one in contenders)
    progress.warn(warning(kind, choosing))
    path = results.file_of((out or Path("compare") / ground.dataset.name).expanduser(), (1, 1))
    with results.writing(path):
        rows = measure(ground, wanted, path, 60 * minutes)
    _tell(rows, contenders, ground, epsilon, kind, json)


def _tell(
    rows: Sequence[Row],
    contenders: Sequence[Contender],
    ground: Ground,
    epsilon: float,
    kind: Literal["private", "public", "synthetic"],
    json: bool,
) -> None:
    from pate_jax.sweep.compare import recommendation

    said = recommendation.sentence(rows, epsilon, ground.majority, kind)
    if json:
        choosing = sum(one.private for one in contenders)
        warned = recommendation.warning(kind, choosing)
        body = {"rows": rows, "majority": ground.majority, "judged_on": kind, "warning": warned}
        print(json_format.dumps({**body, "recommendation": said}))
        return
    from rich.console import Console

    from pate_jax.sweep.compare import table

    Console().print(table.terminal(rows, ground))
    lines = [*table.needs(rows, contenders), *table.refusals(rows), "", said]
    print("\n".join(lines))
