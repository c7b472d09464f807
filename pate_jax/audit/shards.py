"""Checks that no record reached two teachers, and that no input was asked twice."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace

import jax
import numpy as np

from pate_jax import voting
from pate_jax.audit.subject import ELSEWHERE, Subject
from pate_jax.data import Dataset, Part, duplicates, overlap, partition, relation, survey
from pate_jax.ensemble import checkpoint, feeding, training
from pate_jax.ensemble import plan as plans
from pate_jax.runs import answers
from pate_jax.runs.inputs import Inputs
from pate_jax.runs.parties import merged_votes
from pate_jax.runs.public_part import other_encoders
from pate_jax.runs.queries import asked_inputs, public_parts, ruler_of
from pate_jax.runs.record import CROWD, Settings, stage_of
from pate_jax.runs.release.findings import Ended, Finding, failed, judged, passed, unchecked
from pate_jax.system import storage

_ROUNDING = 1e-6  # of a distance between machines
_SECRET = "the secret is 32 bytes with more than 8 different values; where they came from cannot be checked"


def keys(subject: Subject) -> Iterator[Finding]:
    """Whether the run's noise can come from entropy, and only its owner can read the secret."""
    run, settings = subject.run, subject.settings
    stored = storage.read_json(run.keys, "keys")
    seed, entropy = stored.get("seed"), stored.get("entropy")
    if seed is None and not _is_entropy(entropy):
        yield failed("keys.json has neither a seed nor 256 bits that look like entropy")
    elif seed is not None and entropy is not None:
        yield failed("keys.json has both a seed and entropy")
    else:
        yield passed(_SECRET if seed is None else f"a run with the seed {seed}")
    chosen = settings.stages.get("partition", settings.stages.get(CROWD, {}))
    if chosen.get("seed", seed) != seed:
        yield failed("the settings name another seed than keys.json")
    modes = {path: stat.S_IMODE(os.stat(path).st_mode) for path in (run.private, run.keys)}
    loose = [path for path, mode in modes.items() if mode & 0o077]
    yield from judged(
        (f"{path} can be read by other users of this machine: take their rights away" for path in loose),
        "private/ and its keys are open to their owner only",
    )


def _is_entropy(secret: object) -> bool:
    """Whether a secret is 32 bytes in hexadecimal with over 8 different values, as in all honest draws."""
    if not isinstance(secret, str) or len(secret) != 64 or set(secret) - set("0123456789abcdef"):
        return False
    return len(set(bytes.fromhex(secret))) > 8


def certified(subject: Subject) -> Iterator[Finding]:
    """Whether the certificate proves a partition, and the data are the certified data."""
    run, settings = subject.run, subject.settings
    if "data" not in settings:
        raise Ended(unchecked(ELSEWHERE))
    subject.needs("train", run.certificate)
    certificate, claimed = storage.read_json(run.certificate, "certificate"), settings.partition
    about = f"{certificate.get('teachers')} shards by {certificate.get('by')}"
    yield from judged(partition.check_sums(certificate), f"{about} are disjoint and cover the table")
    if (certificate.get("teachers"), certificate.get("by")) != (claimed.number, claimed.by):
        yield failed(f"{about} are certified; the run claims {claimed.number} by {claimed.by}")
    inputs = subject.inputs
    dataset, key = inputs.dataset, inputs.partition_key
    differing = partition.check_certificate(certificate, inputs.shards, inputs.private, key=key)
    yield from judged(
        [*differing, *other_encoders(certificate, dataset)],
        "ids, contents and places of all records are the certified ones",
    )
    stated, actual = relation.claimed(settings.stages), relation.of(dataset, claimed.by)
    yield from judged(
        [f"the run claims the relation {stated!r}, and the ids of its records give {actual!r}"]
        if stated != actual
        else [],
        f"the ids of the records give the relation {actual!r} that the run claims",
    )


def fed(subject: Subject) -> Iterator[Finding]:
    """The rows that each teacher got, by the digests from training and by feeding row numbers again."""
    run, inputs = subject.run, subject.inputs
    if not checkpoint.folders(run.teachers):
        raise Ended(subject.absent(run.teachers, "train"))
    yield from judged(
        _begun_with_others(inputs),
        "the teachers were begun with the certified inputs, labels and shards",
    )
    certificate = storage.read_json(run.certificate, "certificate")
    yield from judged(
        partition.check_fed(certificate, fed_rows(inputs), inputs.private, key=inputs.partition_key),
        "row numbers fed in place of records reach the certified teachers only",
    )
    subject.needs("train", run.teacher_report)
    yield from _width(inputs)


def _begun_with_others(inputs: Inputs) -> Iterator[str]:
    dataset, shards = inputs.dataset, inputs.shards
    key = feeding.digest_of_keys(feeding.keys_of(inputs.teacher_key, len(shards.counts)))
    identities = checkpoint.identities(inputs.run.teachers)
    for one in identities:
        if one.get("preprocessing") != training.plain(dataset.preprocessing):
            yield "the teachers were begun with another preprocessing than that of the public part"
        if one.get("key") != key:
            yield "the teachers were begun with other keys than the run's, or with one key for all"
    wanted = {
        "inputs": storage.digest(inputs.seen.private.inputs),
        "labels": storage.digest(np.asarray(inputs.private.labels, np.int32)),
        "shards": storage.digest(np.asarray(shards.rows), np.asarray(shards.counts, np.int32)),
    }
    for name, digest in wanted.items():
        if any(one["data"].get(name) != digest for one in identities):
            yield f"the teachers were begun with other {name} than the certified ones"


def fed_rows(inputs: Inputs) -> list[np.ndarray]:
    """The rows that reach each teacher: the feeding of training, with row numbers in place of the labels."""
    config, shards, records = inputs.teacher, inputs.shards, len(inputs.dataset.private.ids)
    config = replace(config, net=config.net or "mlp").resolved()  # every net is fed alike
    numbers, nothing = np.arange(records, dtype=np.int32), np.zeros((records, 1), np.uint8)
    table = feeding.records(nothing, numbers, shards, jax.random.key(0), config)
    rows = []
    for teacher in range(len(shards.counts)):
        shard = feeding.take(table, np.array([teacher]), config)
        rows.append(np.asarray(shard.labels[0, : int(shard.count[0])]))
    return rows


def _width(inputs: Inputs) -> Iterator[Finding]:
    """Whether only public numbers determined how many teachers share a program."""
    run, config = inputs.run, inputs.teacher
    report = storage.read_json(run.teacher_report, "teacher-report")["training"]
    backend = report["backend"]
    identities = checkpoint.identities(run.teachers)
    for folder, one in zip(checkpoint.folders(run.teachers), identities, strict=True):
        share, net = -(-one["teachers"] // one["processes"]), one["net"].get("name")
        plan = checkpoint.plan(folder)
        width = plans.choose(net, backend, share, report["devices"], config.width, plan.length).width
        if plan.width == width:
            yield passed(f"{width} teachers shared a program, as the committed table or the settings say")
        elif config.width is not None or plan.width > width or not plan.public_records:
            yield failed(f"{_shared(plan, width)}, and nothing public explains that")
        elif backend != jax.default_backend():
            yield unchecked(f"{_shared(plan, width)}; only a {backend} can measure whether they fitted")
        else:
            again = _planned_again(inputs, plan, report["devices"], share)
            yield from judged(
                [] if again == plan else [f"{_shared(plan, width)}; public numbers give {again.width}"],
                f"{_shared(plan, width)}, which the memory of the machine explains",
            )


def _shared(plan: plans.Plan, width: int) -> str:
    return f"{plan.width} teachers shared a program where {width} were wanted"


def _planned_again(inputs: Inputs, found: plans.Plan, devices: int, share: int) -> plans.Plan:
    """The plan, measured again from public numbers."""
    net, dataset = inputs.net, inputs.dataset
    config = inputs.teacher.of_net(net.description.get("name")).resolved()
    private = inputs.seen.private
    table = feeding.records(private.inputs, private.labels, inputs.shards, inputs.teacher_key, config)
    return training.planned_again(net, dataset.preprocessing, table, config, found, devices, share)


def votes(subject: Subject) -> Iterator[Finding]:
    """Whether the histograms count the labels of the run's teachers."""
    run, settings = subject.run, subject.settings
    subject.needs("vote", run.votes)
    teachers = settings.partition.number if "partition" in settings else None
    for batch in range(1, run.batches + 1):
        found = voting.load_votes(run.votes_of(batch))
        yield from _counted(found, teachers, run.votes_of(batch).name)
        yield from _joined(settings, batch, found)


def _joined(settings: Settings, batch: int, found: voting.Votes) -> Iterator[Finding]:
    """Whether votes that were joined from several owners' may cover whom the run says."""
    recorded = settings.stages.get(stage_of("votes", batch), {})
    if "owners" in recorded:
        number = int(found.votes.sum(1).max(initial=0))
        yield from judged(
            merged_votes.faults(recorded["owners"], settings.relation, recorded["digest"], number),
            f"the certificate of the joined votes covers the relation {settings.relation!r}",
        )


def _counted(found: voting.Votes, teachers: int | None, name: str) -> Iterator[Finding]:
    totals = np.unique(found.votes.sum(1))
    if teachers is not None and totals.tolist() not in ([], [teachers]):
        yield failed(f"{name}: {totals.tolist()} teachers voted, and the run has {teachers}")
    if found.teacher_labels is None:
        yield unchecked(f"{name} holds histograms only, so they cannot be counted again from labels")
        return
    again = np.zeros_like(found.votes)
    for row in found.teacher_labels:
        np.add.at(again, (np.arange(len(again)), row), 1)
    wrong = np.flatnonzero((again != found.votes).any(1))
    yield from judged(
        (f"{name}: the histogram of query {row} is not that of the teachers' labels" for row in wrong[:3]),
        f"{name}: {len(again):,} histograms are the counted labels of {len(found.teacher_labels)} teachers",
    )


def queries(subject: Subject) -> Iterator[Finding]:
    """Whether every query asks about a different public input."""
    run = subject.run
    subject.needs("vote", run.votes)
    batches = [voting.load_votes(run.votes_of(batch)) for batch in range(1, run.batches + 1)]
    all_digests = all(part.digests is not None for part in batches)  # then pools may use an id each
    for what, columns in (
        ("an id", [] if all_digests else [part.ids for part in batches]),
        ("a digest", [part.digests for part in batches]),
    ):
        names = [name for column in columns if column is not None for name in column.tolist()]
        if len(names) != len(set(names)):
            yield failed(f"two queries have {what} in common: answers to one input average the noise away")
    if any(part.ids is None and part.digests is None for part in batches):
        yield unchecked("the votes name no inputs, so an input that was asked about twice would go unseen")
    inputs = subject.inputs
    yield from _apart(inputs)
    if run.answers.exists():
        yield from _different(inputs, batches)
        yield from spaced(inputs)


def spaced(inputs: Inputs) -> Iterator[Finding]:
    """Whether queries are as far from earlier ones as the settings of their batch say, up to rounding."""
    run, asked = inputs.run, asked_inputs(inputs).inputs
    settings, first = run.record.read(), 0
    for line in answers.asked(run):
        last, wanted = first + line.event.asked, settings.vote(line.batch).min_distance
        if wanted is not None:
            kept = ruler_of(inputs.dataset).apart(asked[first:last], wanted * (1 - _ROUNDING), asked[:first])
            near, whole = line.event.asked - len(kept), f"queries of batch {line.batch}"
            yield from judged(
                [f"{near} {whole} are nearer than {wanted:g} to earlier ones"] * (near > 0),
                f"{line.event.asked:,} {whole} are {wanted:g} typical distances apart, or more",
            )
        first = last


def public_apart(subject: Subject) -> Iterator[Finding]:
    """Whether no public part contains private inputs, if the data are available."""
    yield from _apart(subject.inputs)


def _apart(inputs: Inputs) -> Iterator[Finding]:
    """Whether no public part contains private inputs."""
    others = public_parts(inputs)
    dataset = survey.beside(inputs.dataset, others)
    private = dataset.private_digests
    shared = {name: len(overlap.rows(private, part.inputs)) for name, part in others.items()}
    faults = [
        f"{count} of {len(others[name].inputs):,} inputs of the {name} part are private ones too"
        for name, count in shared.items()
        if count
    ]
    if faults and inputs.coincide:
        why = "of a published archive" if dataset.equal_rows == "published" else "declared to be coincidences"
        yield from (unchecked(f"{one}, {why}: that none was copied cannot be seen here") for one in faults)
    else:
        yield from judged(faults, f"no input of the {', '.join(others)} part is a private one")
    yield from _other_people(inputs, dataset, others)
    if dataset.name == "own":
        yield from (unchecked(one) for one in overlap.near_copies(dataset, others))


def _other_people(inputs: Inputs, dataset: Dataset, others: Mapping[str, Part]) -> Iterator[Finding]:
    """Whether no public part names people of the private part, as far as both name any."""
    faults = [
        f"{len(rows)} of {len(part.ids):,} records of the {name} part have the {what} of private records too"
        for name, part in others.items()
        for what, rows in overlap.people(dataset, part).items()
    ]
    if faults and inputs.choice.equal_ids_are_coincidences:
        why = "declared to name different people: that nobody is in both cannot be seen here"
        yield from (unchecked(f"{one}, {why}") for one in faults)
    else:
        yield from judged(faults, f"no id and no user of the {', '.join(others)} part is a private record's")


def _different(inputs: Inputs, batches: list[voting.Votes]) -> Iterator[Finding]:
    """Whether the inputs of all queries differ, and are those that the votes name."""
    asked = asked_inputs(inputs).inputs
    repeated = len(asked) - len(duplicates.unique_queries(asked).first_rows)
    faults = [f"{repeated} queries repeat the input of another: repeats average the noise away"] * bool(
        repeated
    )
    recorded = [name for part in batches if part.digests is not None for name in part.digests.tolist()]
    if recorded and not set(duplicates.digests(asked)) <= set(recorded):
        faults.append("the public inputs are not those whose digests were recorded with the votes")
    yield from judged(faults, f"{len(asked):,} queries ask about different public inputs")
