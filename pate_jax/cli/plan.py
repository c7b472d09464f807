"""`pate plan`: how many teachers, how much noise and how many queries, before any private vote is cast."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pate_jax import voting
from pate_jax.accounting import planning, vote_models
from pate_jax.errors import PateError
from pate_jax.mechanisms import to_dict


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
    dataset: str | None = None,
    public: Path | None = None,
    public_labels: bool = False,
    json: bool = False,
) -> None:
    """Choose teachers, noise, threshold and queries for a wished epsilon, before any vote is cast.

    With --public it rehearses crowds instead, whose records vote by themselves, as `pate run --epsilon` does.

    Args:
        records: how many private records there are; only the two first digits count.
        epsilon: what may be spent at most, by data-independent accounting.
        classes: number of classes.
        delta: the delta of the guarantee.
        answers: how many answers are wanted; unset: the most that a student can use.
        queries: how many public inputs may be asked about at most.
        teachers: numbers of teachers to choose from; unset: 5 to 5,000.
        like: which known votes to expect; any: the mean over all of them.
        votes: a file of public or synthetic votes to judge by, in place of a model; needs --judged-on.
        judged_on: whose records those votes come from; private votes are refused.
        dataset: the data set to name in the command; unset: files of your own.
        public: your public inputs (.npz), to say how right neighbours and sums are expected to be on them.
        public_labels: judge these by their own labels, which are public, and not by made-up ones.
        json: print one JSON object.
    """
    records = planning.counted(records)
    if public is not None:
        _tell_of_crowds(public, records, classes, epsilon, delta, public_labels, json)
        return
    if public_labels:
        raise PateError("--public-labels goes with --public, the file that holds them")
    models: Sequence[vote_models.VoteModel | vote_models.VotesOf] = tuple(
        model for model in vote_models.MODELS if like in ("any", model.name)
    )
    if votes is not None:
        if judged_on is None:
            raise PateError(
                f"--votes {votes} needs --judged-on public or synthetic: a plan made on private votes would "
                "be a release that nothing pays for"
            )
        known = voting.load_votes(votes)
        size = max(1, records // int(known.votes[0].sum()))
        models, classes = (
            (vote_models.VotesOf(votes.stem, known.votes, known.labels, size),),
            known.votes.shape[1],
        )
    found = planning.plan(
        records,
        classes,
        epsilon,
        delta,
        answers=answers,
        most_queries=queries,
        teachers=teachers or planning.TEACHERS,
        models=models,
    )
    command = found.best.command(dataset, delta, found.records)
    if json:
        print(json_format.dumps({**found.to_dict(), "command": command, "delta": delta}))
    else:
        _tell(found, command, delta, classes)


def _tell_of_crowds(
    public: Path, records: int, classes: int, epsilon: float, delta: float, by_labels: bool, json: bool
) -> None:
    from pate_jax import data
    from pate_jax.accounting.inputs import check_delta
    from pate_jax.runs.crowds import forecast

    check_delta(delta)
    if not 0 < epsilon < float("inf"):
        raise PateError(f"epsilon={epsilon} must be a finite number above 0; 1 is an example")
    pool = data.pool(public, classes=classes)
    found = forecast.expected(pool, records=records, epsilon=epsilon, delta=delta, by_labels=by_labels)
    chosen = forecast.best(found)
    if json:
        print(json_format.dumps({"voters": chosen, **{kind: one._asdict() for kind, one in found.items()}}))
        return
    labels = "their own labels" if by_labels else "labels that were made up in several ways"
    print(f"Some {records:,} records, {len(pool.public.inputs):,} public inputs, judged by {labels}:\n")
    for kind, one in found.items():
        print(f"  {kind:<11} {one.text()}; the most frequent class {one.majority:.0%}")
    print(
        f"\npate run --private PRIVATE.npz --public {public} --voters {chosen} --epsilon {epsilon:g} "
        f"--delta {delta:g}"
    )


def _tell(found: planning.Plan, command: str, delta: float, classes: int) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from pate_jax.sweep import page

    best, answers, right = found.best, found.range_answers, found.range_right
    print(
        f"Some {found.records:,} records: their number is counted down to two digits, since what is "
        "chosen by it\nis published.\n\n"
        f"Take {best.teachers:,} teachers of about {best.shard:,} records each and ask about "
        f"{best.queries:,} public inputs.\n"
        f"Spent: at most epsilon {best.epsilon:.4f} at delta {delta:g}, for any data, answered or not.\n"
        f"Expected: {best.answers:,.0f} answers, {best.right:.0%} of them right: worth about "
        f"{best.worth:,.0f} right ones to a student.\n"
    )
    table = Table(box=box.SIMPLE, padding=(0, 1))
    for head in ("teachers", "records each", "queries", "answers", "right", "worth", "setting"):
        table.add_column(head, justify="left" if head == "setting" else "right", overflow="fold")
    for one in (best, *found.others):
        cells = [f"{one.teachers:,}", f"{one.shard:,}", f"{one.queries:,}", f"{one.answers:,.0f}"]
        named = page.short({"mechanism": to_dict(one.mechanism)})
        table.add_row(*cells, f"{one.right:.0%}", f"{one.worth:,.0f}", named)
    Console().print(table)
    print(
        "worth: so many right answers would tell as much, as long as the wrong ones are spread over the\n"
        "classes (a rule of thumb). For fewer and surer answers, say how many: --answers 200.\n\n"
        f"Judged by votes like {', '.join(found.judged_by)}, and by a power law for how teachers learn:\n"
        "none of your records was read. Over these, the first line gives "
        f"{_span(answers, ',.0f')} answers,\n{_span(right, '.0%')} of them right; your data may lie outside. "
        "Epsilon does not depend on them.\n"
    )
    if right[0] < 1.3 / classes:
        print(
            "With the least favourable of these votes answers are hardly better than guesses: spend more,\n"
            "ask for fewer answers, or judge by votes that are closer to yours (--like, --votes).\n"
        )
    print(command)


def _span(ends: tuple[float, float], form: str) -> str:
    low, high = (format(one, form) for one in ends)
    return low if low == high else f"{low} to {high}"
