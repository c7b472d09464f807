"""`pate sweep` and `pate plan`: which setting to use, judged on votes or on a model of them."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated, Literal

from rich import box
from rich.console import Console
from rich.table import Table
from tyro.conf import arg

from pate_jax import planner, voting
from pate_jax.errors import PateError
from pate_jax.mechanisms import to_dict
from pate_jax.sweep import SweepConfig, page
from pate_jax.sweep import sweep as judge


def sweep(config: Annotated[SweepConfig, arg(name="")], json: bool = False) -> None:
    """Judge a grid of settings on votes: what each answers, how right it is, and what it costs.

    Repeat the same command to go on after a stop; a finished cell is never done again. What is written is
    as sensitive as the votes: keep the folder inside.

    Args:
        config: the sweep.
        json: print one JSON object in place of the table.
    """
    found = judge(config)
    if json:
        print(json_format.dumps({**found, "rows": len(found["rows"])}))
        return
    told, _ = page.judged(found["rows"])
    Console().print(page.terminal(found["rows"], found["front"]))
    print(f"{told}\n\nRows: {found['folder']}/results*.jsonl   Page: {found['page']}")


def plan(
    records: int,
    epsilon: float,
    classes: int = 10,
    delta: float = 1e-5,
    answers: int | None = None,
    queries: int = 2000,
    teachers: tuple[int, ...] = (),
    like: Literal["any", "mnist", "fashion_mnist", "published_mnist", "adult"] = "any",
    votes: Path | None = None,
    judged_on: Literal["public", "synthetic"] | None = None,
    dataset: str = "strokes",
    json: bool = False,
) -> None:
    """Choose teachers, noise, threshold and queries for a wished epsilon, before any private vote is cast.

    Args:
        records: how many private records there are.
        epsilon: what may be spent at most, by data-independent accounting.
        classes: number of classes.
        delta: the delta of the guarantee.
        answers: how many answers are wanted; unset: the most that a student can use.
        queries: how many public inputs may be asked about at most.
        teachers: numbers of teachers to choose from; unset: 5 to 5,000.
        like: which known votes to expect; any: the mean over all of them.
        votes: a file of public or synthetic votes to judge by, in place of a model; needs --judged-on.
        judged_on: whose records those votes come from; private votes are refused.
        dataset: the data set to name in the command.
        json: print one JSON object.
    """
    models: tuple = tuple(model for model in planner.MODELS if like in ("any", model.name))
    if votes is not None:
        if judged_on is None:
            raise PateError(
                f"--votes {votes} needs --judged-on public or synthetic: a plan made on private votes would "
                "be a release that nothing pays for"
            )
        known = voting.load_votes(votes)
        size = max(1, records // int(known.votes[0].sum()))
        models, classes = (
            (planner.VotesOf(votes.stem, known.votes, known.labels, size),),
            known.votes.shape[1],
        )
    found = planner.plan(
        records,
        classes,
        epsilon,
        delta,
        answers=answers,
        most_queries=queries,
        teachers=teachers or planner.TEACHERS,
        models=models,
    )
    command = found.best.command(dataset, delta, records)
    if json:
        print(json_format.dumps({**found.to_dict(), "command": command, "delta": delta}))
    else:
        _tell(found, command, delta)


def _tell(found: planner.Plan, command: str, delta: float) -> None:
    best, answers, right = found.best, found.range_answers, found.range_right
    print(
        f"Take {best.teachers} teachers of about {best.shard:,} records each and ask about {best.queries:,} "
        f"public inputs.\nSpent: at most epsilon {best.epsilon:.4f} at delta {delta:g}, for any data, "
        f"answered or not.\nExpected: {best.answers:,.0f} answers, {best.right:.0%} of them right.\n"
    )
    table = Table(box=box.SIMPLE, padding=(0, 1))
    for head in ("teachers", "records each", "queries", "answers", "right", "epsilon", "setting"):
        table.add_column(head, justify="left" if head == "setting" else "right", overflow="fold")
    for one in (best, *found.others):
        cells = [f"{one.teachers:,}", f"{one.shard:,}", f"{one.queries:,}", f"{one.answers:,.0f}"]
        named = page.short({"mechanism": to_dict(one.mechanism)})
        table.add_row(*cells, f"{one.right:.0%}", f"{one.epsilon:.4f}", named)
    Console().print(table)
    judges = ", ".join(found.judged_by)
    print(
        f"Judged by votes like {judges}, and by a power law for how teachers learn: none of your records was "
        f"read.\nOver these, the first line gives {answers[0]:,.0f} to {answers[1]:,.0f} answers, "
        f"{right[0]:.0%} to {right[1]:.0%} of them right; your data may lie outside. "
        "Epsilon does not depend on them.\n\n"
        f"{command}"
    )
