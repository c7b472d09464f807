"""`pate compare`: which method serves one's own data best at an epsilon."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import OmitArgPrefixes

from pate_jax.errors import PateError
from pate_jax.runs.settings import CUSTOMARY_EPSILON, STROKES, DataChoice
from pate_jax.system.tasks import HERE_ALONE, Where


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
    where: Annotated[Where, OmitArgPrefixes] = HERE_ALONE,
) -> None:
    """Compare teachers, neighbours, sums, rivals and no privacy on the same records, for a trial.

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
        where: who does the work.
    """
    from pate_jax.data import encoders, relation
    from pate_jax.runs import measured
    from pate_jax.runs.inputs import open_classes, open_data
    from pate_jax.sweep.compare import comparison, contenders
    from pate_jax.system import tasks

    encoders.frozen(data.encoder)
    folder = (out or Path("compare") / ("own" if data.private else data.dataset)).expanduser()
    opened, keep, number = data.drawn(STROKES), folder / "encoded", data.target is not None
    dataset = open_data(opened, keep) if number else open_classes(opened, "pate compare", keep)
    if number and data.by_group is not None:
        raise PateError(f"--by-group {data.by_group} is for classes, and --target is a number: leave it out")
    chosen = contenders.of_numbers(methods) if number else contenders.named(methods)
    relation.check_users_count(dataset, "record")
    metric = measured.metric(data, dataset)
    begun = comparison.begun(dataset, chosen, epsilon, delta, judged_on, metric, data.by_group)
    with tasks.engine(where, private=begun.judged_on == "private") as engine:
        found = begun.measured(folder, draws, 60 * minutes, engine, data.drawn(STROKES))
    if json:
        print(json_format.dumps(found.to_dict()))
    else:
        found.show()
