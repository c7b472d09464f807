"""The one step between what is private and what may leave: the table, its noise, and the line that says so.

    public_side.npz   what voters are compared in and what they are asked, from public things alone
    table.npz         the exact table; private
    certificate.json  who voted, how little each can say, which table
    ledger.jsonl      the number of voters and the table, both noisy, durable before anything that shows them
    answers.npz       the noisy table; written again from the ledger whenever it is missing

Each of these but the ledger has a number in its name from the second step on; the public side of such a step
is the weights at which its gradients are taken, from the noisy tables before it. After the tables come, of a
run whose sums have several students,

    compared/         the students, public
    comparison.npz    how many held-out voters agree with each; private, and a line with noise

and of a candidate of a choice of settings

    scored/           its student, public
    score.npz         how many held-out voters agree with it; private, and a line of the ledger with noise

The noise is derived from the run's secret and the line: its number, its release, and the digests of the table
and the public side. So no noise serves two tables, nor one table twice, and a run that a crash interrupts
ends with the same numbers.

The certificate is that of a partition into one part, so that counts, hashes and digests of records and users
are checked as those of teachers' shards are. Beside it stand how many votes one voter casts, or how long its
vector is at most, how far that moves the table, and which table was counted on which public side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from pate_jax import crowd as voting
from pate_jax.accounting import after_count, filter
from pate_jax.accounting.exact import counts
from pate_jax.data import Part, partition
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import (
    Comparison,
    CrowdRelease,
    CrowdTable,
    HeadCount,
    NeighbourCounts,
    Score,
    TeacherVotes,
)
from pate_jax.runs import driver, ledger, plans, public_part
from pate_jax.runs.crowds import answers, processes, public_side, scans, steps, students
from pate_jax.runs.crowds.inputs import Crowd, compares, comparison_of, is_candidate, plan_of
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.driver import Method, Question
from pate_jax.runs.ledger import CrowdLine
from pate_jax.runs.record import PLANNED
from pate_jax.runs.report import words
from pate_jax.student import Student
from pate_jax.system import progress, storage

Table = Int[np.ndarray, "rows columns"]
_TABLE = "crowd-table"
NOTHING = ""  # the digest of the public side of a number that is asked of nothing public


def count(crowd: Crowd) -> Table:
    """The exact table of a step, counted once and certified. It is private."""
    public = _asked_on(crowd)
    run, plan, path = crowd.run, crowd.plan, crowd.run.table_of(crowd.step)
    proof = run.certificate_of(crowd.step)
    if path.exists() and proof.exists():
        table = load_table(run, crowd.step)
        found = list(faults(storage.read_json(proof, "certificate"), plan.release, table, public))
        if found:
            raise PateError(f"{path} is not the certified one: {found[0]}; restore it from a backup")
        return table
    table = counted(crowd)
    made = _certificate_of(crowd, table, public) | public_part.encoders(crowd.dataset)
    storage.write_arrays(path, _TABLE, {"table": table})
    storage.write_json(proof, "certificate", made)
    return table


def _certificate_of(crowd: Crowd, table: Table, public: str) -> dict[str, Any]:
    key, release = crowd.inputs.partition_key, crowd.plan.release
    if crowd.dataset.scan is not None:
        return scans.certificate(crowd.dataset, key, crowd.choice.by) | _said(release, table, public)
    return certificate(
        crowd.dataset.private,
        key=key,
        by=crowd.choice.by,
        release=release,
        table=table,
        public=public,
        held_out=crowd.judging,
    )


def _asked_on(crowd: Crowd) -> str:
    """The digest of the public side of a step, which is kept before anything is counted on it."""
    path = crowd.run.public_side_of(crowd.step)
    if not path.exists():
        public_side.write(path, public(crowd))
    return public_side.digest(public_side.read(path))


def public(crowd: Crowd) -> dict[str, np.ndarray]:
    """The public side of a step, made anew."""
    if crowd.step == 1:
        return crowd.arrays(crowd.plan)
    first = public_side.read(crowd.run.public_side)
    return public_side.of_step(crowd.step, answers.after(crowd.at(crowd.step - 1)), first)


def counted(crowd: Crowd, people: voting.Voters | None = None) -> Table:
    """The exact table of these voters, or of all; of all, every process counts its own part."""
    if people is not None:
        return voting.table(crowd.plan, people)
    if crowd.dataset.scan is not None:
        return scans.table(crowd)
    processes.ask_to_count(crowd.arrays(crowd.plan))
    return voting.table(crowd.plan, crowd.people, crowd.voted if crowd.step > 1 else None)


def load_table(run: RunDirectory, step: int = 1) -> Table:
    """The exact table of one step of a run."""
    return storage.read_arrays(run.existing(run.table_of(step), "run"), _TABLE)["table"]


def release(crowd: Crowd) -> None:
    """Release the number of voters, and each step's table, with noise and once; a line each.

    What the voters are asked follows from the noisy number, so that it comes first. After the last table a
    candidate is scored, or several students may be compared.
    """
    driver.release(Counting(crowd))


def count_voters(crowd: Crowd) -> None:
    """Release the number of voters before anything is chosen by it, with noise that suits whoever votes."""
    driver.release(Counting(crowd, only_number=True))


@dataclass(frozen=True)
class Counting(Method[CrowdRelease]):
    """What a crowd is asked: its number, its tables, and what its held-out voters think of students."""

    crowd: Crowd
    only_number: bool = False  # before anything is chosen by it

    @property
    def run(self) -> RunDirectory:  # type: ignore[override]
        """Where it lies."""
        return self.crowd.run

    def plan(self) -> plans.Plan:
        """All that it may spend."""
        return plan_of(self.run)

    def released(self) -> list[CrowdLine]:
        """The lines that the ledger shows."""
        self.run.record.agree("budget", filter.budget_to_dict(None))
        return list(ledger.releases(self.run.ledger))

    def ask(self, released: Sequence[CrowdLine]) -> Question[CrowdRelease] | None:
        """The number of voters; a table for each step; a score of a candidate, or a comparison."""
        number, choice = len(released) + 1, self.crowd.choice
        if not released and self.only_number:
            return Question(1, after_count.headcount(choice.epsilon, choice.delta), NOTHING)
        if not released:
            return Question(1, counts.headcount_for(self.crowd.mu, choice.voters), NOTHING)
        if self.only_number:
            return None
        last = steps.agreed(self.crowd)
        if number <= steps.table_batch(last):
            crowd = self.crowd.at(number - 1)
            public = _asked_on(crowd)  # which is kept now, and the plan is read from it
            return Question(number, crowd.plan.release, public)
        crowd = self.crowd.at(last)
        if number > steps.table_batch(last + 1):
            return None
        if is_candidate(self.run):
            score = counts.score_for(crowd.mu, choice.voters)
            return Question(number, score, students.scored(crowd))
        if compares(self.run, choice):
            students.every(crowd)
            return Question(number, comparison_of(self.run, choice), students.digest_of_all(self.run))
        return None

    def measure(self, question: Question[CrowdRelease]) -> Table:
        """What the voters say."""
        if isinstance(question.event, HeadCount):
            return np.array([[self.crowd.number]])
        if isinstance(question.event, Score):
            return students.score(self.crowd.at(steps.agreed(self.crowd)))
        if isinstance(question.event, Comparison):
            return students.comparison(self.crowd.at(steps.agreed(self.crowd)))
        return count(self.crowd.at(question.number - 1))

    def issue(self, line: CrowdLine) -> None:
        """Write the noisy table of a step; refused where a line was asked on something else than is here."""
        run, path = self.run, _asked_in(self.run, line)
        if path is not None and line.public != asked_on(run, line):
            raise PateError(
                f"release {line.batch} in {run.ledger} was asked on something else than {path} holds: "
                "restore them from a backup"
            )
        if isinstance(line.event, HeadCount):
            self._say_steps()
        elif isinstance(line.event, Comparison):
            progress.say(words.compared(students.told(run)._asdict()))
        elif not isinstance(line.event, Score):
            crowd = self.crowd.at(steps.step_of(line))
            if line.event != crowd.plan.release:
                raise PateError(
                    f"release {line.batch} in {run.ledger} is another one than {path} plans: restore them "
                    "from a backup"
                )
            steps.issue(run, crowd.step, line)

    def _say_steps(self) -> None:
        """Say how many steps the number of voters leads to, where sums take several."""
        if self.only_number or PLANNED in self.run.record.stages() or is_candidate(self.run):
            return
        made = self.crowd.at(1).plan
        if made.steps is not None:
            progress.say(f"sums: {words.steps_planned(made, self.crowd.dataset.classes)}")


def _asked_in(run: RunDirectory, line: CrowdLine) -> Path | None:
    """Where what a release was asked on lies; None of a number of voters."""
    if isinstance(line.event, HeadCount):
        return None
    if isinstance(line.event, Comparison):
        return run.home / "compared"
    if isinstance(line.event, Score):
        return run.scored
    return run.existing(run.public_side_of(steps.step_of(line)), "run")


def asked_on(run: RunDirectory, line: CrowdLine) -> str:
    """The digest of what a release was asked on: a public side, students, or nothing."""
    if isinstance(line.event, HeadCount):
        return NOTHING
    if isinstance(line.event, Comparison):
        return students.digest_of_all(run)
    if isinstance(line.event, Score):
        return students.digest(Student.load(run.scored))
    return public_side.digest(public_side.read(run.public_side_of(steps.step_of(line))))


HELD_OUT = "held_out"


def certificate(
    part: Part, *, key: bytes, by: str, release: CrowdTable, table: Table, public: str, held_out: int = 0
) -> dict[str, Any]:
    """The certificate of a table that was counted on the public side with this digest. It is private.

    `held_out` says how many voters of the part did not vote.
    """
    proof = partition.certificate(partition.divide(part, 1, key=key, by=by), part, key=key, by=by)
    silent = {HELD_OUT: held_out} if held_out else {}
    return {**proof, **silent, **_said(release, table, public)}


def faults(found: Mapping[str, Any], release: CrowdTable, table: Table, public: str) -> Iterator[str]:
    """What of a certificate does not fit a release, the table that was counted for it, or itself."""
    yield from partition.check_sums(found)
    said = _said(release, table, public)
    yield from (
        f"{name} is certified as {found.get(name)!r}, and is {said[name]!r}"
        for name in said
        if found.get(name) != said[name]
    )
    yield from beyond(release, table, voters(found) - held_out(found))


def voters(found: Mapping[str, Any]) -> int:
    """How many voters are certified, those who are held out among them."""
    return int(found["users"] if found["by"] == "user" else found["records"])


def held_out(found: Mapping[str, Any]) -> int:
    """How many of them are held out; none in a run of one round."""
    silent = found.get(HELD_OUT, 0)
    if type(silent) is not int or not 0 <= silent <= voters(found):
        raise PateError(f"the certificate has {HELD_OUT}={silent!r}: restore it from a backup")
    return silent


def beyond(release: CrowdTable | TeacherVotes, table: Table, voters: int) -> Iterator[str]:
    """What of a table so many voters cannot have cast, if each keeps to the release's bound.

    >>> release = NeighbourCounts(queries=3, classes=2, votes=1, sigma=2.0)
    >>> list(beyond(release, np.array([[2, 0], [1, 1], [0, 0]]), voters=4))
    []
    >>> list(beyond(release, np.array([[2, 0], [1, 1], [4, 0]]), voters=4))
    ['4 voters of 1 vote each cast 4 votes at most, and the table holds 8']
    """
    if table.shape != release.shape:
        yield f"the table is {list(table.shape)}, and the release {list(release.shape)}"
    elif isinstance(release, NeighbourCounts):
        cast = voters * release.votes
        if int(table.sum()) > cast or (table < 0).any():
            each = f"{voters:,} voters of {release.votes} vote{'s' * (release.votes > 1)} each"
            yield f"{each} cast {cast:,} votes at most, and the table holds {table.sum():,}"
        if (most := int(table.sum(1).max(initial=0))) > voters:
            yield f"{voters:,} voters vote once at a query at most, and the table has one with {most:,} votes"
    elif isinstance(release, TeacherVotes):
        if (table < 0).any() or (table > voters).any() or int(table.sum(1).max()) > voters * release.most:
            yield f"{voters:,} teachers of at most {release.most} labels an input cannot have cast the table"
    elif float((table.astype(np.float64) ** 2).sum()) > (voters * float(release.length)) ** 2 * (1 + 1e-9):
        yield f"the table is longer than {voters:,} voters of length {release.length} can make it"


def _said(release: CrowdTable, table: Table, public: str) -> dict[str, Any]:
    bound = {"votes": release.votes} if isinstance(release, NeighbourCounts) else {"length": release.length}
    moves = {change: release.squared_shift(change) for change in ("changed", "joined")}
    return {
        "voters": release.name,
        "casts": {**bound, "squared_shift": moves},
        "table": storage.digest(table),
        "public_side": public,
    }
