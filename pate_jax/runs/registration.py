"""A run in the register of its owner: entered before it spends, and every answer noted before it leaves.

The order is: the run's line in the register, and then for each line of the run's ledger its digest in the
register, the line, and what it shows. A crash between the two files leaves one digest more in the register
than lines in the ledger. Then the same answer is given again, and no other one.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from pate_jax.accounting.costs import BestOf, Trained
from pate_jax.accounting.inputs import CUSTOMARY_DELTA
from pate_jax.data import Dataset
from pate_jax.errors import PateError, PateWarning
from pate_jax.mechanisms.codec import to_dict
from pate_jax.runs import anchors, chain, people, plans, register
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.plans import Plan
from pate_jax.runs.register import Book, Entry
from pate_jax.runs.release.findings import Finding, failed, judged, passed, unchecked
from pate_jax.system import storage

NONE = "none"  # in place of a register's file: somebody else counts
_STAGE = "register"
_ELSEWHERE = (
    "Register: none, so nobody here counts what other runs on these records cost (--register none): add them "
    "up where they are counted."
)


class Standing(NamedTuple):
    """How many runs a person of a run's records may be in, and what they cost together."""

    file: Path
    runs: int
    unknown: int  # of runs on records that the register does not know
    sums: list[plans.Sum]  # the first has part of all runs

    def text(self) -> str:
        """The last line of a run."""
        only = (
            self.file == anchors.default().resolve() and len(anchors.known()) == 1
        )  # no other is known here
        where = "on this machine" if only else f"in {self.file}"
        if self.runs == 1:
            return f"Register: this is the first run on these records {where}."
        said = f"These records have been used by {self.runs} runs {where}: together {self.sums[0].text()}."
        if self.unknown:
            said += f" {self.unknown} of them had votes alone, whose records nobody knows."
        for one in self.sums[1:]:
            said += f" {one.silent} of them promise nothing for {plans.WHOM[one.relation]}."
        return said

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        first = self.sums[0]
        figures = {"epsilon": first.epsilon, "delta": first.delta, "relation": first.relation}
        return {"file": str(self.file), "runs": self.runs, **figures, "text": self.text()}


def enter(
    run: RunDirectory, plan: Plan, records: Callable[[], Dataset | None], file: Path | None = None
) -> None:
    """Enter a run with the most that it may spend; refused, before it spends, if a limit would be exceeded.

    Without a file it is the register that the run is in, or the default one. The records are opened if the
    run is not in it yet, and are None where only votes are known. A run with a seed promises nothing that
    could be added up, and is entered nowhere. One that has answered already is counted in any case, and
    answers nothing more beyond the limit.
    """
    if run.secret.seed is not None:
        if file is not None and not _is_none(file):
            raise PateError(f"{run.root} has a seed, so it promises nothing to be added up: leave out --seed")
        return
    known = run.record.stages().get(_STAGE)
    if _is_none(file) or (file is None and known == {"file": NONE}):
        run.record.agree(_STAGE, {"file": NONE})
        return
    there = register.find(file or _recorded(run))
    book = register.read(there)
    _check_same(run, known, book)
    dataset = None if _stands(book, run, plan) else records()
    shown = None if dataset is None else people.of(dataset, book.key)
    with register.writing(there) as writer:
        new = _entered(writer, run, plan, shown)
        if new:
            _warn(standing_in(writer.book, run))
    own = there == anchors.default().resolve()  # which lies elsewhere where the run was moved to
    run.record.revise({_STAGE: {"file": str(there), "identity": book.identity, "own": own}})


def _entered(writer: register.Writer, run: RunDirectory, plan: Plan, shown: people.People | None) -> bool:
    """Write the lines of a run that are not there yet; whether it was new to the register."""
    run_name, before = name(run), writer.book.entries.get(name(run))
    if before is not None and _stands(writer.book, run, plan):
        _check_alone(run, before, plan)
        return False
    sample = None if shown is None else _sample(shown)
    here, now = str(run.root.resolve()), datetime.now(UTC).isoformat(timespec="seconds")
    wanted = (before or Entry(run_name, here, now, ())).planned(plan, here, now, sample)
    answered = [digest(line) for line in chain.entries(run.ledger)] if before is None else []
    samples = dict(writer.book.samples)
    if shown is not None and sample is not None:
        samples[sample] = shown
    if not answered:
        entries = {**writer.book.entries, run_name: wanted}
        replace(writer.book, entries=entries, samples=samples).check_limit(run_name)
    if shown is not None and sample not in writer.book.samples:
        writer.append({"sample": people.to_dict(shown), "name": sample})
    line = {"run": run_name, "place": here, "time": now, "plan": to_dict(plan), "people": sample}
    writer.append(line)
    for one in answered:
        writer.append({"run": run_name, "answer": one})
    return before is None


def _stands(book: Book, run: RunDirectory, plan: Plan) -> bool:
    before = book.entries.get(name(run))
    return before is not None and before.plans[-1].covers(plan)


def _sample(shown: people.People) -> str:
    return hashlib.sha256(json.dumps(people.to_dict(shown), sort_keys=True).encode()).hexdigest()[:32]


def _warn(found: Standing) -> None:
    """Say before anything is spent that others were before."""
    if found.runs > 1:
        warnings.warn(
            f"this is run {found.runs} on the same private records, or on some of them, and each is a "
            f"release of its own: together they cost {found.sums[0].text()}. Publish that sum, or choose "
            "settings on public or made-up data",
            PateWarning,
            stacklevel=4,
        )


def _check_alone(run: RunDirectory, before: Entry, plan: Plan) -> None:
    """Refuse a copy of a training, or of a choice of settings, which another machine would repeat.

    With other rounding two nets would differ by that alone, and show the sums behind the noise. Candidates
    of a choice would count other tables, with other noise, of which the register shows nothing.
    """
    made = run.student.exists() and run.public_statement.exists()  # so it is not trained once more
    if isinstance(plan.events[0], Trained | BestOf) and before.place != str(run.root.resolve()) and not made:
        raise PateError(
            f"{run.root} is a copy of {before.place}, and a training by DP-SGD or a choice of settings goes "
            "on in one place alone: continue it there, or begin another run"
        )


def _check_same(run: RunDirectory, known: Mapping[str, Any] | None, book: Book) -> None:
    """Refuse to go on under another register than the run was entered in."""
    if known is not None and known.get("identity", book.identity) != book.identity:
        raise PateError(
            f"{run.root} was entered in the register {known['file']}, and {book.file} is another one, which "
            "would count it anew: repeat the command with the register that it was entered in"
        )


def _recorded(run: RunDirectory) -> Path | None:
    """The register that a run was entered in; None for the user's own, where that lies now."""
    known = run.record.stages().get(_STAGE, {})
    file = Path(known.get("file", NONE))
    return None if str(file) == NONE or (known.get("own") and not file.exists()) else file


def _is_none(file: Path | None) -> bool:
    return file is not None and str(file) == NONE


def name(run: RunDirectory) -> str:
    """The name of a run in a register, which reveals nothing about its secret."""
    return run.secret.derive("name in a register").hex()


def digest(line: Mapping[str, Any]) -> str:
    """What a ledger's line says, whatever the chain adds to it: a killed run that goes on says it again.

    >>> digest({"batch": 1, "answers": "3 -"}) == digest({"answers": "3 -", "batch": 1, "sequence": 0})
    True
    """
    body = {one: value for one, value in line.items() if one not in chain.OF_THE_CHAIN}
    return hashlib.sha256(json.dumps(body, sort_keys=True, allow_nan=False).encode()).hexdigest()


class Ledger(chain.Writer):
    """The writer of a run's ledger, each line of which stands in the run's register before it is written."""

    def __init__(self, run: RunDirectory, plan: Callable[[], Plan]) -> None:
        super().__init__(run.ledger)
        self.run, self.plan = run, plan

    def append(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Note a line in the register and write it; when this returns, what it shows may leave."""
        file = self.run.record.stages().get(_STAGE, {}).get("file", NONE)
        if file != NONE:
            _note(self.run, self.plan(), [digest(line) for line in chain.entries(self.path)], digest(entry))
        return super().append(entry)


def _note(run: RunDirectory, plan: Plan, before: list[str], wanted: str) -> None:
    """Write the digest of a run's next answer into its register, unless it is there; any other is refused."""
    file = _recorded(run) or register.find(None)
    with register.writing(file) as writer:
        _check_same(run, run.record.stages()[_STAGE], writer.book)
        mine = writer.book.entries.get(name(run))
        if mine is None or not any(one.covers(plan) for one in mine.plans):
            raise PateError(
                f"{file} does not show what {run.root} is about to spend: it is from an older copy, or was "
                "changed since the run was entered; restore it, or repeat the command that enters the run"
            )
        if (fault := _misfit(mine, before, wanted)) is not None:
            raise PateError(
                f"{run.root} does not fit its register {file}: {fault}. Nothing was answered. Go on in the "
                "folder that has all answers, or restore its newest copy"
            )
        if len(before) == len(mine.answers):
            writer.book.check_limit(mine.run)
            writer.append({"run": mine.run, "answer": wanted})


def _misfit(mine: Entry, before: list[str], wanted: str) -> str | None:
    """What is wrong where a run's ledger and its register do not go together."""
    shown = mine.answers[: len(before)]
    if len(shown) < len(before):
        return "the ledger has answers that the register does not show, so that is from an older copy"
    if list(shown) != before:
        return "another copy of this run has answered something else"
    if len(mine.answers) > len(before) and mine.answers[len(before)] != wanted:
        return (
            "the register shows a further answer, to another question, by a copy of this run or before this "
            "folder was restored from a backup"
        )
    return None


def standing(run: RunDirectory) -> Standing | None:
    """Whom a run shares its people with; None where it is in no register."""
    known = run.record.stages().get(_STAGE, {"file": NONE})
    if known["file"] == NONE:
        return None
    return standing_in(register.read(_recorded(run) or register.find(None)), run)


def standing_in(book: Book, run: RunDirectory) -> Standing:
    """The same in a register that is open; at the delta of its limit, of the run, or the customary one."""
    group = book.around(name(run))
    delta = book.limit.delta if book.limit else run.record.read().delta or CUSTOMARY_DELTA
    unknown = sum(not entry.samples for entry in group)
    return Standing(book.file, len(group), unknown, plans.sums(register.spent(group), delta))


def shown(run: RunDirectory) -> dict[str, Any]:
    """What a finished run says of its register: nothing of one with a seed."""
    if run.record.stages().get(_STAGE) == {"file": NONE}:
        return {"register": {"file": NONE, "text": _ELSEWHERE}}
    found = standing(run)
    return {} if found is None else {"register": found.to_dict()}


def published(run: RunDirectory) -> str | None:
    """What a model card says of other runs; None of a run with a seed.

    Which runs share people depends on the records, and a card must not: so it speaks of the whole register,
    as if all its runs were on the same people.
    """
    if run.record.stages().get(_STAGE) == {"file": NONE}:
        return "Other runs on the same records: somebody else counts them, as the owner declares."
    found = standing(run)
    if found is None:
        return None
    entries = list(register.read(found.file).entries.values())
    if len(entries) == 1:
        return "Other runs: none stood in the owner's register when this was released."
    first = plans.sums(register.spent(entries), found.sums[0].delta)[0]
    return (
        f"Other runs: when this was released, {len(entries)} runs stood in the owner's register, on the same "
        f"or on other records; were all on the same, they would cost {first.text()}, together."
    )


def examined(run: RunDirectory, plan: Plan | None) -> Iterator[Finding]:
    """Whether the register shows a run with what it may spend and all that it has answered, and who else."""
    known = run.record.stages().get(_STAGE)
    if known is None:
        return
    if known == {"file": NONE}:
        yield passed("declared only: somebody else counts the runs on these records, and nobody does here")
        return
    file = _recorded(run) or anchors.default().resolve()
    if not file.exists():
        yield unchecked(f"{file} is not here, so nobody can see whether the run stands in it")
        return
    try:
        book = register.read(file)
        if (
            str(file) != known["file"] and book.identity != known["identity"]
        ):  # on the machine of another user
            yield unchecked(f"{known['file']} is not here, so nobody can see whether the run stands in it")
            return
        _check_same(run, known, book)
    except PateError as error:
        yield failed(str(error))
        return
    mine = book.entries.get(name(run))
    if mine is None or (plan is not None and not any(one.covers(plan) for one in mine.plans)):
        yield failed(f"{file} does not show this run with what it has asked")
        return
    lines = [digest(line) for line in chain.entries(run.ledger)]
    kept = lines[: len(mine.answers)] if _ends_open(run) else lines
    fits = list(mine.answers) == kept or list(mine.answers[:-1]) == kept
    yield from judged(
        [] if fits else [f"{file} shows other answers of this run than its ledger"],
        "the register shows this run with all that it may spend, and each of its answers",
    )
    yield passed(standing_in(book, run).text())


def _ends_open(run: RunDirectory) -> bool:
    """Whether a ledger's last line says what came of a vote, which is charged by the lines before."""
    return storage.read_json(run.settings, "settings").get("party") is not None
