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
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from jaxtyping import Int

from pate_jax import crowd as voting
from pate_jax.accounting import after_count, filter
from pate_jax.accounting.exact import counts
from pate_jax.aggregate.crowds import noisy_table
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import CrowdRelease, HeadCount
from pate_jax.runs import budget, chain, ledger, publication, registration, streams
from pate_jax.runs.crowds import answers, comparison, processes, public_side, rivals, steps, students
from pate_jax.runs.crowds.certificate import certificate, faults
from pate_jax.runs.crowds.inputs import Crowd, compares, comparison_of, is_candidate, plan_of
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.ledger import CrowdLine
from pate_jax.runs.record import PLANNED
from pate_jax.runs.report import crowd_words
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
    made = certificate(
        crowd.dataset.private,
        key=crowd.inputs.partition_key,
        by=crowd.choice.by,
        release=plan.release,
        table=table,
        public=public,
        held_out=crowd.judging,
    )
    storage.write_arrays(path, _TABLE, {"table": table})
    storage.write_json(proof, "certificate", made)
    return table


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
    run = crowd.run
    run.record.agree("budget", filter.budget_to_dict(None))
    with registration.Ledger(run, lambda: plan_of(run)) as book:
        beside = counts.headcount_for(crowd.mu, crowd.choice.voters)
        _shown(book, run, 1, lambda: _number(crowd, beside))
        made, last = crowd.at(1).plan, steps.agreed(crowd)
        if made.steps is not None and PLANNED not in run.record.stages() and not is_candidate(run):
            progress.say(f"sums: {crowd_words.steps_planned(made, crowd.dataset.classes)}")
        for step in range(1, last + 1):
            _table(book, crowd.at(step))
        if is_candidate(run):
            _scored(book, crowd.at(last))
        elif compares(run, crowd.choice):
            _compare(book, crowd.at(last))


def _table(book: chain.Writer, crowd: Crowd) -> None:
    """Release the table of a step, once."""
    run, step = crowd.run, crowd.step
    line = _shown(book, run, steps.table_batch(step), partial(_charge, crowd))
    path = run.existing(run.public_side_of(step), "run")
    if (line.release, line.public) != (crowd.plan.release, public_side.digest(public_side.read(path))):
        raise PateError(
            f"{run.ledger} shows a release on another public side than that in {path}: "
            "restore them from a backup"
        )
    steps.issue(run, step, line)


def count_voters(crowd: Crowd) -> None:
    """Release the number of voters before anything is chosen by it, with noise that suits whoever votes."""
    run = crowd.run
    run.record.agree("budget", filter.budget_to_dict(None))
    with registration.Ledger(run, lambda: plan_of(run)) as book:
        beside = after_count.headcount(crowd.choice.epsilon, crowd.choice.delta)
        _shown(book, run, 1, lambda: _number(crowd, beside))


def _shown(book: chain.Writer, run: RunDirectory, batch: int, make: Callable[[], CrowdLine]) -> CrowdLine:
    """The line of a batch: that which the ledger shows, or a new one."""
    lines = list(ledger.releases(run.ledger))
    if len(lines) >= batch:
        return lines[batch - 1]
    publication.refuse_unshown(run)
    return ledger.append_crowd(book, make())


def _scored(book: chain.Writer, crowd: Crowd) -> None:
    """Release the score of a candidate's student."""
    run, taught = crowd.run, students.scored(crowd)
    line = _shown(book, run, steps.table_batch(crowd.step + 1), partial(_score, crowd))
    if line.public != taught:
        raise PateError(
            f"{run.ledger} shows a score of another student than that in {run.scored}: "
            "restore them from a backup"
        )


def _compare(book: chain.Writer, crowd: Crowd) -> None:
    """Release the comparison of the students of the last table, once, whatever is asked for later."""
    run = crowd.run
    rivals.every(crowd)
    line = _shown(book, run, steps.table_batch(crowd.step + 1), partial(_comparison, crowd))
    if line.public != rivals.digest(run):
        raise PateError(
            f"{run.ledger} shows a comparison of other students than those in {run.home / 'compared'}: "
            "restore them from a backup"
        )
    progress.say(crowd_words.compared(comparison.told(run)._asdict()))


def _comparison(crowd: Crowd) -> CrowdLine:
    """The line of the comparison of students."""
    exact, beside = rivals.exact(crowd), comparison_of(crowd.run, crowd.choice)
    return _line(crowd.run, steps.table_batch(crowd.step + 1), beside, exact, rivals.digest(crowd.run))


def _number(crowd: Crowd, beside: HeadCount) -> CrowdLine:
    """The line of the number of voters."""
    return _line(crowd.run, 1, beside, np.array([[crowd.number]]), NOTHING)


def _score(crowd: Crowd) -> CrowdLine:
    """The line of the score of a candidate's student."""
    beside = counts.score_for(crowd.mu, crowd.choice.voters)
    exact, taught = students.score(crowd), students.scored(crowd)
    return _line(crowd.run, steps.table_batch(crowd.step + 1), beside, exact, taught)


def _charge(crowd: Crowd) -> CrowdLine:
    """The line of the table of a step."""
    table, batch = count(crowd), steps.table_batch(crowd.step)
    return _line(crowd.run, batch, crowd.plan.release, table, _asked_on(crowd))


def _line(run: RunDirectory, batch: int, release: CrowdRelease, table: Table, public: str) -> CrowdLine:
    """The line of a release: what it costs, and the noisy table."""
    order, cost = budget.release_cost(None, release)
    line = CrowdLine(batch, release, storage.digest(table), public, "", None, order, cost, "")
    values = ledger.pack_table(draw(run, line, table))
    return line._replace(noise=streams.commitment(run, line.stream), values=values)


def draw(run: RunDirectory, line: CrowdLine, table: Table) -> Table:
    """The noisy form of this table under the run's noise for a line: the same at every call."""
    key = streams.key(run, line._replace(table=storage.digest(table)).stream)
    return noisy_table(line.release, table, key=key).values
