"""`pate compare`, `sweep` and `baseline`: which method and which setting serve best.

`pate compare` says which method serves one's own data best at an epsilon, `pate sweep` which setting to use,
judged on votes and by students, or by whole runs. `pate baseline` has other ways to learn from the same
records.
"""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, arg

from pate_jax.errors import PateError
from pate_jax.runs.baselines.training import BaselineConfig
from pate_jax.runs.settings import CUSTOMARY_EPSILON, STROKES, DataChoice
from pate_jax.sweep import SweepConfig, page
from pate_jax.sweep import sweep as judge
from pate_jax.system import tasks
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


def sweep(config: Annotated[SweepConfig, arg(name="")], json: bool = False) -> None:
    """Cross teachers, nets, queries, noise and students: what each setting gives, and what it costs.

    Teachers are trained once and vote once on each list of queries; students learn where the answers are
    worth it. The picture shows accuracy against publishable epsilon, a line for each number of teachers.
    Repeat the same command to go on after a stop; a finished cell is never done again. What is written is
    as sensitive as the votes: keep the folder inside.

    Args:
        config: the sweep.
        json: print one JSON object in place of the table.
    """
    whole = config.runs is not None
    found = _of_runs(config, config.runs) if config.runs is not None else judge(config)
    if json:
        print(json_format.dumps({**found, "rows": len(found["rows"])}))
        return
    from rich.console import Console

    if whole:
        Console().print(page.of_runs(found["rows"]))
        print(f"{found['runs']} runs, of which {found['refused']} were refused.")
        print(f"Rows: {found['folder']}/results.jsonl   Runs: {found['folder']}/runs")
    else:
        told, _ = page.judged(found["rows"])
        Console().print(page.terminal(found["rows"], found["front"]))
        print(f"{told}\n\nRows: {found['folder']}/results.jsonl   Page: {found['page']}")
    print(f"Picture: {found['picture']}")


def _of_runs(config: SweepConfig, file: Path) -> dict[str, Any]:
    """Do the runs of a grid."""
    from pate_jax.cli.student import run_of
    from pate_jax.runs import config_file
    from pate_jax.sweep import whole_runs

    configs = [run_of(flags, str(file)) for flags in config_file.grid(file)]
    with tasks.engine(config.where) as engine:
        return whole_runs.sweep(configs, config.folder, engine)


def dpsgd(config: Annotated[BaselineConfig, arg(name="")], json: bool = False) -> None:
    """Train a net on the private records themselves, by DP-SGD, to compare it with a run.

    Repeat the same command to continue a run that was stopped: it makes the same steps with the same noise.

    Args:
        config: the training.
        json: end with one JSON object in place of the summary.
    """
    from pate_jax.runs.baselines import training

    results = training.run(config)
    print(json_format.dumps(results) if json else training.told(results))
