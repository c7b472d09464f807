"""What one party brings to a vote: the exact numbers of its own voters, its noise, and a promise of both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from pate_jax.accounting.costs import PartyVote
from pate_jax.aggregate.noise import share
from pate_jax.data import Dataset, relation
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms import Noise
from pate_jax.mechanisms.shared_votes import SharedVote
from pate_jax.parties.agreement import Agreement
from pate_jax.runs import plans, public_part, secret, stages
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.crowds.release import certificate
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import Inputs
from pate_jax.runs.parties import questions as asking
from pate_jax.runs.parties import terms
from pate_jax.runs.parties.questions import Questions
from pate_jax.runs.settings import CrowdChoice, DataChoice, PartitionChoice
from pate_jax.system import storage
from pate_jax.voting import save_votes

Table = Int[np.ndarray, "query class"]
_TABLE = "crowd-table"


class Shares(NamedTuple):
    """A party's own noise: on every number, and on the test of each query where there is one."""

    counts: Table
    test: Int[np.ndarray, " query"] | None


@dataclass(frozen=True)
class Member:
    """One party of an agreement, in its own run directory."""

    run: RunDirectory
    agreement: Agreement
    name: str
    questions: Questions
    data: DataChoice
    seed: int | None = None
    votes: Path | None = None  # beside the key: in which run each agreement was voted on

    @property
    def vote(self) -> SharedVote:
        """What all parties open together."""
        return terms.vote_of(self.agreement, self.questions)

    @property
    def spends(self) -> plans.Plan:
        """What this party's voters may lose by the vote."""
        return plans.Plan((PartyVote(self.vote, self.agreement.unit),), self.agreement.unit)

    @property
    def voters(self) -> int:
        """How many voters this party has, or may have."""
        return terms.voters_of(self.agreement, self.name, self.questions)

    @property
    def by(self) -> str:
        """What a voter is, or what is kept in one teacher."""
        return "user" if self.agreement.unit == "user" else "record"


def open_dataset(member: Member) -> Dataset:
    """The data of a party; refused where its public pool is another than the agreed one."""
    dataset = crowd_of(member).dataset
    if public_part.digest(dataset) != member.agreement.pool:
        raise PateError(
            "your public pool is not that of the agreement, to the last label and id: take the same --public "
            "file, columns, classes, categories and scales as the party that wrote it"
        )
    return dataset


def inputs(member: Member, *, tolerant: bool = False) -> Inputs:
    """The data of a party, and what they were read by."""
    return replace(crowd_of(member).inputs, tolerant=tolerant)


def seen(member: Member) -> Dataset:
    """The data as a crowd's space sees them: features beside inputs may take their place."""
    return crowd_of(member).seen


def cast(member: Member) -> Table:
    """The exact numbers of the party's own voters, made once and kept. They are private."""
    if member.questions.plan is None:
        return _of_teachers(member)
    return _of_crowd(member)


def _of_teachers(member: Member) -> Table:
    """The votes of teachers that are trained as `pate train` trains them."""
    run = member.run
    _check_covered(member)
    if run.votes.exists():
        return _counted(member)
    training = member.agreement.training
    if ":" in str(training.get("net")):
        raise PateError(
            f"net={training['net']!r} in the agreement names code of somebody's own, and parties train nets "
            "of this library alone: agree on one of these"
        )
    config = TeacherConfig(net=training.get("net"), epochs=training.get("epochs"))  # type: ignore[arg-type]
    cut = PartitionChoice(teachers=member.voters, by=member.by, seed=member.seed)  # type: ignore[arg-type]
    inputs = stages.begin(run, member.data, cut, config, delta=member.agreement.delta)
    stages.train(inputs)
    save_votes(run.votes, stages.votes_on(inputs, inputs.dataset.public.take(member.questions.rows)))
    return _counted(member)


def _check_covered(member: Member) -> None:
    """Refuse to promise something to a record whose removal would move the votes of many teachers."""
    if member.agreement.unit == "record" and relation.are_rows(open_dataset(member)):
        raise PateError(
            "the ids of your records are row numbers, so that removing one record renumbers the others and "
            "moves them to other teachers, and the agreement promises that it moves one vote: give ids that "
            "belong to the records, pass --ids-are-stable if each record keeps its number, or agree on "
            "--unit party"
        )


def _counted(member: Member) -> Table:
    from pate_jax.voting import load_votes

    return load_votes(member.run.votes).votes.astype(np.int64)


def _of_crowd(member: Member) -> Table:
    """The counts or sums of records or users, with the certificate of who voted."""
    run, plan = member.run, member.questions.plan
    if plan is None:
        raise PateError("a crowd's questions have a plan: copy the agreement's own file of questions")
    if not (run.table.exists() and run.certificate.exists()):
        crowd = crowd_of(member)
        _check_number(member, crowd.number)
        table = asking.table(member.questions, crowd)
        release, own = plan.release, asking.opened_table(member.questions, table)
        made = certificate(
            crowd.dataset.private,
            key=crowd.inputs.partition_key,
            by=crowd.choice.by,
            release=release,
            table=own,
            public=member.agreement.query_list,
        )
        storage.write_arrays(run.table, _TABLE, {"table": table})
        storage.write_json(run.certificate, "certificate", made)
    return storage.read_arrays(run.table, _TABLE)["table"].astype(np.int64)


def _check_number(member: Member, number: int) -> None:
    if number > member.voters:
        raise PateError(
            f"{member.name} has more voters than the {member.voters:,} of its card: make a new card that "
            "says how many it may have at most, and a new agreement"
        )


def crowd_of(member: Member) -> Crowd:
    """The crowd of this party; of teachers only its data are read."""
    kind = "sums" if member.agreement.voters == "teachers" else member.agreement.voters
    space: Any = member.agreement.training.get("space")
    by = "user" if member.by == "user" else "record"
    choice = CrowdChoice(kind, by=by, seed=member.seed, space=space)  # type: ignore[arg-type]
    return crowd_inputs.made(member.run, member.data, choice)


def shares(member: Member, table: Table) -> Shares:
    """The party's own noise, which follows from its secret, the agreement and its exact numbers.

    So a repeated command brings the same noise, and no noise serves two agreements or two ballots.
    """
    vote, stream = member.vote, partial(_stream, member, table)
    counts = share(vote.noise.share, table.shape, key=member.run.secret.key(stream("numbers")))
    if vote.test_noise is None:
        return Shares(counts, None)
    of_test: Noise = vote.test_noise.share
    key = member.run.secret.key(stream("test"))
    return Shares(counts, share(of_test, table.shape[:1], key=key))


def promise(member: Member, table: Table) -> str:
    """What commits the party to its ballot and its noise, and reveals neither."""
    return member.run.secret.derive(f"promise of {_stream(member, table, 'ballot')}").hex()


def _stream(member: Member, table: Table, of: str) -> str:
    event = {"name": "share of a vote", "of": of}
    return secret.stream(1, event, storage.digest(table), f"{member.agreement.digest} {member.name}")


def facts(member: Member) -> dict[str, Any]:
    """What the settings of a party's run say of the agreement."""
    return {"agreement": member.agreement.digest, "name": member.name, "vote": member.agreement.vote}
