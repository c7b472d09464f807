"""Number of teachers, queries and noise for a wished epsilon, where the user leaves them open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from pate_jax import mechanisms, models
from pate_jax.accounting import planning
from pate_jax.accounting.exact import counts
from pate_jax.crowd.metric import Metric
from pate_jax.crowd.rehearsal import Expected
from pate_jax.crowd.roles import Labels
from pate_jax.data import Dataset, overlap, partition
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.models.spaces import Learned
from pate_jax.runs import budget, measured, queries, teacher_rehearsal, teacher_votes
from pate_jax.runs.crowds import forecast
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import front_of, open_data, teachers_net
from pate_jax.runs.record import PLANNED, refuse_crowd
from pate_jax.runs.settings import STROKES, RunConfig
from pate_jax.runs.thresholds import StableChoice
from pate_jax.system import devices, headcount, progress
from pate_jax.system.tasks import HERE, Engine

_OF_STEPS = 60  # records at least of a teacher that learns step by step
_AHEAD = 0.02  # of the judged inputs, above the most frequent class, from which a crowd is worth naming
_CHANGE = (
    "  Change what you like: --teachers, --net, --queries, --selection, a mechanism; or --voters auto, sums, "
    "neighbours (`pate run --help-all`)."
)


class Settled(NamedTuple):
    """The settings of a run with nothing left open, why they are so, and what was made for it already."""

    config: RunConfig
    said: tuple[str, ...] = ()
    net: models.Model | None = None
    opened: Dataset | None = None


class Askable(NamedTuple):
    """The public inputs that may be asked about."""

    distance: float | None  # that they are from each other at least, in units of the typical one
    number: int


def settled(
    run: RunDirectory,
    config: RunConfig,
    known: Mapping[str, Any] | None = None,
    engine: Engine = HERE,
) -> Settled:
    """A run of teachers with all that `--epsilon` leaves open; others are returned as they are.

    The choice reads the number of records or users, rounded down to two digits, and no record. It is kept
    with the settings, so that the run can be continued. A plan that is `known` was chosen by a noisy number.
    """
    if isinstance(config.mechanism, StableChoice):
        return Settled(replace(config, mechanism=config.mechanism.settled(config.budget, config.delta)))
    if config.budget_epsilon is not None or config.mechanism is not None:
        return Settled(config)
    with devices.failing_together():
        refuse_crowd(run.record.read(), run.root)
    config = replace(config, data=config.data.drawn(STROKES))
    stages, net, opened = run.record.stages(), None, None
    if known is not None:
        found = dict(known)
    elif PLANNED in stages:
        found = stages[PLANNED]
    else:
        opened = _opened(config, engine)
        found, net = _planned(config, opened)
    _check_wish(run, config, found)
    if devices.is_first():
        run.record.agree(PLANNED, found)
    lines = tuple(said(found))
    for line in lines:
        progress.say(line)
    return Settled(_filled(config, found), lines, net, opened)


def _check_wish(run: RunDirectory, config: RunConfig, found: Mapping[str, Any]) -> None:
    """Refuse to go on with a plan that was made for another epsilon or delta than is wished now."""
    planned, wished = (found["epsilon"], found["delta"]), (config.budget, config.delta)
    if planned != wished:
        raise PateError(
            f"{run.root} was planned for epsilon {planned[0]:g} at delta {planned[1]:g}, and now epsilon "
            f"{wished[0]:g} at delta {wished[1]:g} is wished: keep to the former, or choose another --out"
        )


def _filled(config: RunConfig, found: Mapping[str, Any]) -> RunConfig:
    """The settings with what was planned in their open places.

    One list of whole histograms has an exact figure, at most what was wished, and no filter that costs more.
    """
    mechanism = mechanisms.from_dict(found["mechanism"])
    exact = mechanism.releases_counts or "headcount" in found  # the limit of both holds then
    return replace(
        config,
        epsilon=None if exact else config.budget,
        partition=replace(config.partition, teachers=found["teachers"]),
        teacher=replace(config.teacher, net=config.teacher.net or found["net"]),
        queries=found["queries"],
        selection=config.selection or found["selection"],
        min_distance=config.min_distance or found["min_distance"],
        mechanism=mechanism,
    )


def _opened(config: RunConfig, engine: Engine) -> Dataset:
    """The data, refused where there are fewer records than teachers that the user wants."""
    with devices.failing_together():
        dataset = open_data(config.data, RunDirectory(config.directory).encoded, engine)
        if config.partition.teachers is not None:
            partition.check_number(budget.people(dataset, config.partition.by), config.partition.teachers)
    return dataset


def _planned(config: RunConfig, dataset: Dataset) -> tuple[dict[str, Any], models.Model | None]:
    """The plan by the number of records, and the net of linear teachers, if they are these."""
    with devices.failing_together():
        pool = askable(config, dataset)
    records = planning.counted(budget.people(dataset, config.partition.by))
    wish: dict[str, Any] = {"records": records, "epsilon": float(config.budget or 0)}
    wide = forecast.learned(dataset)
    labels = forecast.judges(dataset, wide, own=config.data.private is not None)
    metric = measured.metric(config.data, dataset)
    try:
        return planned(config, dataset, wide, labels, pool, **wish, metric=metric)
    except teacher_rehearsal.NoUse as error:
        other = _way_out(dataset, wide, labels, metric, **wish, delta=config.delta)
        raise PateError(f"{error}{other}") from None


def planned(
    config: RunConfig,
    dataset: Dataset,
    wide: Learned,
    labels: list[Labels],
    pool: Askable,
    *,
    records: int,
    epsilon: float,
    metric: Metric,
) -> tuple[dict[str, Any], models.Model | None]:
    """The plan as it is recorded, and the net of linear teachers, if they are these; from public things.

    `records` is their number or, where it was told with noise, what was told.
    """
    linear, net = config.teacher.net in (None, "linear"), _net(config.teacher, dataset, wide)
    wish: dict[str, Any] = {"records": records, "epsilon": epsilon, "delta": config.delta}
    found = teacher_rehearsal.rehearse(
        dataset,
        labels,
        **wish,
        teachers=config.partition.teachers,
        queries=config.queries,
        most_queries=pool.number,
        least_shard=teacher_rehearsal.SHARDS[0] if linear else _OF_STEPS,
        net=net,
        metric=metric,
    )
    option = found.option
    return {
        **wish,
        "classes": dataset.classes,
        "pool": pool.number,
        "teachers": option.teachers,
        "shard": option.shard,
        "net": config.teacher.net or "linear",
        "front": front_of(config.teacher, dataset) if linear else None,
        "queries": option.queries,
        "selection": config.selection or ("space" if linear else "kmeans"),
        "min_distance": pool.distance,
        "mechanism": mechanisms.to_dict(option.mechanism),
        "right": option.right,
        "expected": found.expected._asdict(),
    }, (net if linear else None)


def _net(config: TeacherConfig, dataset: Dataset, wide: Learned) -> models.Model:
    """The net of the linear teachers that are rehearsed, in the space of crowds unless another is named."""
    config = config if config.net in (None, "linear") else teacher_votes.CONFIG
    config = replace(config, net="linear").resolved()
    return teachers_net(config, dataset, wide.space if config.front is None else None)


def askable(config: RunConfig, dataset: Dataset) -> Askable:
    """Which inputs: as far apart as told, or no near-duplicates; refused if there are fewer than wanted."""
    ruler, wanted, distance = queries.ruler_of(dataset), config.queries or 1, config.min_distance
    if distance is None and ruler.typical > 0:
        apart = queries.different(dataset.public, 1, [], queries.Spacing(ruler, overlap.NEAR))
        if len(apart) >= wanted:
            return Askable(overlap.NEAR, len(apart))
    spacing = None if distance is None else queries.Spacing(ruler, distance)
    return Askable(distance, len(queries.different(dataset.public, wanted, [], spacing)))


def _way_out(
    dataset: Dataset,
    wide: Learned,
    labels: list[Labels],
    metric: Metric,
    records: int,
    epsilon: float,
    delta: float,
) -> str:
    """What another kind of voters is expected to bring, where teachers bring nothing."""
    mu, voters = counts.mu_for(epsilon, delta), headcount.coarse(records)
    found = forecast.of_crowds(
        forecast.CROWDS, wide, labels, voters=voters, classes=dataset.classes, mu=mu, metric=metric
    )
    best = forecast.leader(found)
    if found[best].accuracy < found[best].majority + _AHEAD:
        return ""
    return f"; or take --voters {best}: {found[best].text()} is expected of them"


def said(found: Mapping[str, Any]) -> list[str]:
    """What was chosen and why, in five lines."""
    expected, mechanism = Expected(**found["expected"]), mechanisms.from_dict(found["mechanism"])
    noise, what = mechanism.noise, "all noisy counts" if mechanism.releases_counts else "the leading label"
    made_up = "no forecast without public labels; with labels made up in several ways"
    judges = "expected with the labels of your public file" if expected.labels == 1 else made_up
    typical = found["selection"] in ("space", "kmeans")
    how = ", each typical of one cluster of the public part" if typical else ""
    apart = "" if found["min_distance"] is None else ", no two of them near-duplicates"
    front = "" if found["front"] is None else f", in the space {found['front']}"
    others = "".join(f"; {kind} {Expected(**one).text()}" for kind, one in found.get("kinds", {}).items())
    number = f", and of {found['headcount']:,.4g} on the number of voters before" if others else ""
    return [
        f"Chosen by public inputs alone, for epsilon {found['epsilon']:g} at delta {found['delta']:g}: about "
        f"{found['records']:,} records, {found['classes']} classes, {found['pool']:,} public inputs.",
        f"  teachers: {found['teachers']:,} of about {found['shard']:,} records each, net {found['net']}"
        f"{front}; the student that they teach does best in a rehearsal.",
        f"  queries: {found['queries']:,}{how}{apart}; an answer is {what}; noise: "
        f"{found['mechanism']['name']} of scale {noise.scale:,.4g} on each count of votes{number}.",
        f"  {judges}: answers {found['right']:.0%} right; of a simple student "
        f"{expected.text()}{others}; {expected.usual}.",
        _CHANGE,
    ]
