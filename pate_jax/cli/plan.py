"""`pate plan`: how many teachers, how much noise and how many queries, before any private vote is cast."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import OmitArgPrefixes

from pate_jax import data
from pate_jax.accounting import planning, stable, vote_models
from pate_jax.accounting.inputs import CUSTOMARY_DELTA, delta_beside
from pate_jax.errors import PateError
from pate_jax.mechanisms import to_dict
from pate_jax.models.names import Metric
from pate_jax.system import tasks
from pate_jax.system.tasks import HERE_ALONE, Where
from pate_jax.voting.votes import votes_of


@dataclass(frozen=True)
class PublicPart:
    """Your public inputs, and how they are read and judged by; the flags are those of `pate run`."""

    classes: int | str | None = None
    """Number of classes, or their names; unset: those of the public labels, else 10."""
    public: Path | None = None
    """Your public inputs, of any kind that `pate run` takes, to say how right each kind of voters is expected
    to be on them: judged by their own labels, if they have any, else by made-up ones."""
    public_labels: bool = False
    """Refuse public inputs that have no labels to judge by."""
    metric: Metric = "accuracy"
    """What voters are compared by on --public; balanced, auroc or auprc where an outcome is rare."""
    positive: str | None = None
    """Of two classes, the outcome that auprc is of; unset: the rarer one."""
    label_column: str | None = None
    """Column of a public table that holds the label."""
    id_column: str | None = None
    """Column of a public table that holds the id, from which nothing is learned."""
    categories: Path | None = None
    """JSON file with the categories of categorical columns; unset: those of the public part."""
    scales: Path | None = None
    """JSON file with offset and scale of numeric columns; unset: by the public part."""
    image_size: int | None = None
    """Height and width to which the images of a public folder are resized."""
    text_column: str | None = None
    """Column of a public table that holds free text, or several with commas between them."""
    encoder: str | None = None
    """What makes numbers of text, by name or its file or folder; unset: words."""

    def __post_init__(self) -> None:
        if self.public_labels and self.public is None:
            raise PateError("--public-labels goes with --public, the file that holds them")

    def opened(self, public: Path) -> data.Dataset:
        """The public inputs, as a run opens them."""
        options = {name: getattr(self, name) for name in _READ}
        found = data.public_parts(public, **options, encoder=data.encoders.frozen(self.encoder))
        if self.public_labels and found.public.labels is None:
            raise PateError(f"{public} has no labels to judge by: leave out --public-labels")
        return found

    def flags(self) -> str:
        """These inputs in the command of a run."""
        metric = None if self.metric == "accuracy" else self.metric
        given = {"metric": metric, "positive": self.positive}
        given |= {name: getattr(self, name) for name in (*_READ, "encoder")}
        return "".join(
            f" --{name.replace('_', '-')} {value}" for name, value in given.items() if value is not None
        )


_READ = ("label_column", "id_column", "categories", "scales", "classes", "image_size", "text_column")


def plan(
    records: int,
    epsilon: float,
    delta: float | None = None,
    answers: int | None = None,
    queries: int = 2000,
    teachers: tuple[int, ...] = (),
    like: Literal["any", "mnist", "fashion_mnist", "published_mnist", "adult"] = "any",
    votes: Path | None = None,
    judged_on: Literal["public", "synthetic"] | None = None,
    dataset: str | None = None,
    part: Annotated[PublicPart, OmitArgPrefixes] = PublicPart(),
    json: bool = False,
    where: Annotated[Where, OmitArgPrefixes] = HERE_ALONE,
) -> None:
    """Choose teachers, noise, threshold and queries for a wished epsilon, before any vote is cast.

    With --public it rehearses all kinds of voters on your public inputs: crowds, whose records vote by
    themselves, in one round and in two, as `pate run --epsilon` does, and linear teachers.

    Args:
        records: how many private records there are; only the two first digits count.
        epsilon: what may be spent at most, by data-independent accounting.
        delta: the delta of the guarantee; unset: 1e-5, or of more than 10,000 records the power of ten below
            one over ten times their number, which is public here.
        answers: how many answers are wanted; unset: the most that a student can use.
        queries: how many public inputs may be asked about at most.
        teachers: numbers of teachers to choose from; unset: 5 to 5,000.
        like: which known votes to expect; any: the mean over all of them.
        votes: a file of public or synthetic votes to judge by, in place of a model; needs --judged-on.
        judged_on: whose records those votes come from; private votes are refused.
        dataset: the data set to name in the command; unset: files of your own.
        part: your public inputs.
        json: print one JSON object.
        where: who rehearses on --public.
    """
    records = planning.counted(records)
    delta = delta_beside(records, CUSTOMARY_DELTA) if delta is None else delta
    if part.public is not None:
        _tell_of_all(part.public.expanduser(), part, records, epsilon, delta, json, where)
        return
    models, classes = _models(records, part.classes, like, votes, judged_on)
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
    command, best = found.best.command(dataset, delta, found.records), found.best
    size = {"teachers": best.teachers, "shard": best.shard, "classes": classes, "queries": queries}
    rival = stable.outlook(models, **size, budget=epsilon, delta=delta)
    if json:
        more = {"command": command, "delta": delta, "stable_answers": rival.to_dict()}
        print(json_format.dumps({**found.to_dict(), **more}))
    else:
        _tell(found, command, delta, classes, rival)


def _models(
    records: int, classes: int | str | None, like: str, votes: Path | None, judged_on: str | None
) -> tuple[Sequence[vote_models.VoteModel | vote_models.VotesOf], int]:
    """The votes to expect, of known teachers or of a file, and the number of classes."""
    if votes is None:
        return tuple(model for model in vote_models.MODELS if like in ("any", model.name)), _number(classes)
    if judged_on is None:
        raise PateError(
            f"--votes {votes} needs --judged-on public or synthetic: a plan made on private votes would "
            "be a release that nothing pays for"
        )
    known = votes_of(votes)
    size = max(1, records // int(known.votes[0].sum()))
    return (vote_models.VotesOf(votes.stem, known.votes, known.labels, size),), known.votes.shape[1]


def _tell_of_all(
    public: Path, part: PublicPart, records: int, epsilon: float, delta: float, json: bool, where: Where
) -> None:
    from pate_jax.accounting.inputs import check_delta
    from pate_jax.crowd.metric import named
    from pate_jax.runs import public_labels, voters_comparison
    from pate_jax.runs.inputs import refuse_several

    check_delta(delta)
    refuse_several(part.label_column, "pate plan", epsilon, delta)
    if not 0 < epsilon < float("inf"):
        raise PateError(f"epsilon={epsilon} must be a finite number above 0; 1 is an example")
    pool = part.opened(public)
    metric = named(part.metric, part.positive, pool.class_names)
    with tasks.engine(where, private=False) as engine:
        found = voters_comparison.rehearsed(
            pool,
            records=records,
            epsilon=epsilon,
            delta=delta,
            metric=metric,
            engine=engine,
        )
    files = f"--private PRIVATE{public.suffix} --public {public}"
    command = f"pate run {files}{part.flags()} --delta {delta:g} {found.flags(epsilon)}"
    if json:
        kinds = {name: one._asdict() for name, one in found.expected.items()}
        print(
            json_format.dumps({"voters": found.best, **kinds, "refused": found.refused, "command": command})
        )
        return
    labels = "labels made up in several ways" if pool.public.labels is None else "their own labels"
    print(f"Some {records:,} records, {len(pool.public.inputs):,} public inputs, judged by {labels}:\n")
    if pool.public.labels is None:
        print(
            "No forecast without public labels: nothing public says which of these labels yours are like.\n"
        )
    for name, one in found.expected.items():
        print(f"  {name:<25} {one.text()}")
    if found.refused:
        print(f"  {'teachers':<25} none: {found.refused}")
    usual = next(iter(found.expected.values())).usual
    print(f"\n{usual[0].upper()}{usual[1:]}.")
    alone = public_labels.sentence(pool, metric)
    print(f"{alone}\n\n{command}" if alone else f"\n{command}")


def _number(classes: int | str | None) -> int:
    """How many classes there are, by their number or names."""
    return len(classes.split(",")) if isinstance(classes, str) else 10 if classes is None else classes


def _tell(found: planning.Plan, command: str, delta: float, classes: int, rival: stable.Outlook) -> None:
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
        "worth: how many right answers would teach a student as much, if the wrong ones are spread over\n"
        "the classes (a rule of thumb). For fewer and surer answers, say how many: --answers 200.\n\n"
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
    print(f"{rival.text(best.teachers, best.worth)}\n")
    print(command)


def _span(ends: tuple[float, float], form: str) -> str:
    low, high = (format(one, form) for one in ends)
    return low if low == high else f"{low} to {high}"
