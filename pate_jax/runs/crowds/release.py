"""The one step between what is private and what may leave: the table, its noise, and the line that says so.

    public_side.npz   what voters are compared in and what they are asked, from public things alone
    table.npz         the exact table; private
    certificate.json  who voted, how little each can say, which table
    ledger.jsonl      the number of voters and the table, both noisy, durable before anything that shows them
    answers.npz       the noisy table; written again from the ledger whenever it is missing

The noise is derived from the run's secret, the release, and the digests of the table and the public side. So
no noise serves two tables, nor one table twice, and a run that a crash interrupts ends with the same numbers.
"""

from __future__ import annotations

import json

import numpy as np
from jaxtyping import Int

from pate_jax import crowd as voting
from pate_jax.accounting.exact import counts
from pate_jax.aggregate.crowds import noisy_table
from pate_jax.crowd import shares
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import (
    ClassSums,
    CrowdRelease,
    CrowdTable,
    HeadCount,
    to_dict,
)
from pate_jax.runs import batches, budget, chain, ledger, register
from pate_jax.runs.crowds import processes, public_side
from pate_jax.runs.crowds.certificate import certificate, faults
from pate_jax.runs.crowds.inputs import Crowd, told
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.ledger import CrowdLine
from pate_jax.system import storage

Table = Int[np.ndarray, "rows columns"]
_TABLE, _NOISY = "crowd-table", "noisy-table"
_KINDS = ("the number of voters", "the table")  # one line each, in this order
NOTHING = ""  # the digest of the public side of a number that is asked of nothing public


def count(crowd: Crowd) -> Table:
    """The exact table of all voters, counted once and certified. It is private."""
    run, plan = crowd.run, crowd.plan
    if not run.public_side.exists():
        public_side.write(run.public_side, crowd.arrays(plan))
    public = public_side.digest(public_side.read(run.public_side))
    if run.table.exists() and run.certificate.exists():
        table = load_table(run)
        found = list(faults(storage.read_json(run.certificate, "certificate"), plan.release, table, public))
        if found:
            raise PateError(f"{run.table} is not the certified one: {found[0]}; restore it from a backup")
        return table
    table = counted(crowd)
    made = certificate(
        crowd.dataset.private,
        key=crowd.inputs.partition_key,
        by=crowd.choice.by,
        release=plan.release,
        table=table,
        public=public,
    )
    storage.write_arrays(run.table, _TABLE, {"table": table})
    storage.write_json(run.certificate, "certificate", made)
    return table


def counted(crowd: Crowd, people: voting.Voters | None = None) -> Table:
    """The exact table of these voters, or of all; of all, every process counts its own part."""
    if people is not None:
        return voting.table(crowd.plan, people)
    processes.ask_to_count(crowd.arrays(crowd.plan))
    return voting.table(crowd.plan, crowd.people)


def load_table(run: RunDirectory) -> Table:
    """The exact table of a run."""
    return storage.read_arrays(run.existing(run.table, "run"), _TABLE)["table"]


def release(crowd: Crowd) -> CrowdLine:
    """Release the number of voters and then the table, both with noise and once; a line each.

    What the voters are asked follows from the noisy number, so that it comes first.
    """
    run = crowd.run
    run.record.agree("budget", ledger.budget_to_dict(None))
    with chain.Writer(run.ledger) as book:
        lines = list(ledger.releases(run.ledger))
        if len(lines) < len(_KINDS):
            register.confirm_crowd(run)
        if not lines:
            number = np.array([[crowd.number]])
            beside = counts.headcount_for(crowd.mu, crowd.choice.voters)
            ledger.append_crowd(book, _line(run, 1, beside, number, NOTHING))
        line = lines[1] if len(lines) > 1 else ledger.append_crowd(book, _charge(crowd))
        public = public_side.digest(public_side.read(run.existing(run.public_side, "run")))
        if (line.release, line.public) != (crowd.plan.release, public):
            raise PateError(
                f"{run.ledger} shows a release on another public side than that in {run.public_side}: "
                "restore them from a backup"
            )
        _issue(run, line)
    return line


def _charge(crowd: Crowd) -> CrowdLine:
    """The line of the table."""
    table, run = count(crowd), crowd.run
    return _line(run, 2, crowd.plan.release, table, public_side.digest(public_side.read(run.public_side)))


def _line(run: RunDirectory, batch: int, release: CrowdRelease, table: Table, public: str) -> CrowdLine:
    """The line of a release: what it costs, and the noisy table."""
    order, cost = budget.release_cost(None, release)
    exact = storage.digest(table)
    return CrowdLine(
        batch,
        release,
        table=exact,
        public=public,
        noise=batches.commitment(run, stream(release, exact, public)),
        budget=None,
        order=order,
        cost=cost,
        values=ledger.pack_table(draw(run, release, table, public)),
    )


def draw(run: RunDirectory, release: CrowdRelease, table: Table, public: str) -> Table:
    """The noisy table under the run's noise: the same at every call."""
    key = batches.noise_key(run, stream(release, storage.digest(table), public))
    return noisy_table(release, table, key=key).values


def stream(release: CrowdRelease, table: str, public: str) -> str:
    """The name of the noise stream that serves one release of one table and nothing else."""
    return f"noise of crowd release {json.dumps(to_dict(release), sort_keys=True)} for {table} on {public}"


def _issue(run: RunDirectory, line: CrowdLine) -> None:
    """Write the noisy table that the ledger shows, once more if need be; never drawn again."""
    if not run.answers.exists():
        values = ledger.unpack_table(line.values, line.release.shape)
        storage.write_arrays(run.answers, _NOISY, {"values": values})
    load_noisy(run)


def load_noisy(run: RunDirectory) -> tuple[CrowdTable, Table]:
    """The table that a run has released: what the ledger shows, where the file of it holds the same."""
    lines = list(ledger.releases(run.ledger))
    file = storage.read_arrays(run.existing(run.answers, "run"), _NOISY).get("values")
    release = lines[-1].release if len(lines) == len(_KINDS) else None
    if release is None or isinstance(release, HeadCount):
        raise PateError(
            f"{run.ledger} shows {len(lines)} releases, and a crowd's run has {len(_KINDS)}, the number of "
            "voters and a table: restore it from a backup"
        )
    values = ledger.unpack_table(lines[-1].values, release.shape)
    if file is None or not np.array_equal(values, file):
        raise PateError(
            f"{run.answers} differs from the ledger, which recorded another noisy table: remove it, and "
            "the command that made the run writes it again"
        )
    return release, values


def soft(crowd: Crowd) -> tuple[shares.Shares, np.ndarray]:
    """Probabilities that follow from the noisy table, and the rows of the public part that they are of."""
    release, values = load_noisy(crowd.run)
    plan = crowd.plan._replace(release=release)
    if isinstance(release, ClassSums):
        found = shares.of_sums(values, plan, crowd.pool, told(crowd.run))
        return found, np.arange(len(crowd.dataset.public.inputs))
    if plan.queries is None:
        raise PateError(f"{crowd.run.public_side} names no queries: restore it from a backup")
    return shares.of_counts(values, release), plan.queries.rows
