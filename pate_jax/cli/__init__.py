"""`pate`: the stages of a run as commands, with flags made from the dataclasses that the functions take.

Only what the named command needs is imported, so that a help or a short command does not wait for JAX.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from pate_jax import __version__
from pate_jax.cli import help
from pate_jax.errors import PateError
from pate_jax.system import devices, exits, topology

devices.prepare()


class Command(NamedTuple):
    """A command: the function that does it, in a module of this package, and the first line of its help."""

    function: str
    summary: str

    def load(self) -> Callable[..., Any]:
        """Import the function."""
        module, _, name = self.function.partition(".")
        function: Callable[..., Any] = getattr(import_module(f"{__name__}.{module}"), name)
        return function


COMMANDS = {
    "inspect": Command(
        "inspect.inspect_command",
        "Show what a file or folder of your own holds, what would be refused, and the command to give next.",
    ),
    "split": Command(
        "inspect.split",
        "Divide a table or .npz into public and private parts for a trial; its public rows have no privacy.",
    ),
    "run": Command("run.run", "Do the whole job: from private records to a student that may be published."),
    "baseline dpsgd": Command(
        "compare.dpsgd",
        "Train a net on the private records themselves, by DP-SGD, to compare it with a run.",
    ),
    "tune": Command(
        "tune.tune",
        "Choose settings on private data and pay for the choice: the best of a random number of candidates.",
    ),
    "train": Command("run.train", "Cut the private records into shards and train one teacher on each."),
    "vote": Command("run.vote", "Let the teachers of a run label public inputs, into private/votes.npz."),
    "aggregate": Command(
        "run.aggregate",
        "Answer every query of a run, or of a votes file made elsewhere, with a mechanism's noise.",
    ),
    "account": Command(
        "account.account",
        "Say what answering the queries of a votes file costs, or what a run has spent.",
    ),
    "student": Command("student.student", "Train the student of a run on its answers and write release/."),
    "predict": Command(
        "student.predict",
        "Ask a published student about inputs; nothing but release/student/ is read.",
    ),
    "budget": Command(
        "budget.budget_command",
        "Show what a run has spent and what is left, or without one, all runs of the register.",
    ),
    "report": Command("inspect.report_command", "Write the report pages of a run and print its summary."),
    "verify": Command(
        "inspect.verify_command",
        "Recompute a run, or check a release/ by itself; exit code 1 where something does not fit.",
    ),
    "risk": Command(
        "risk.risk",
        "Say what single persons risk in a finished run, exactly: SENSITIVE, and written into private/ only.",
    ),
    "attack": Command(
        "risk.attack",
        "Attack a finished run: is its noise as charged, who took part, and do bad records change answers?",
    ),
    "sweep": Command(
        "compare.sweep",
        "Cross teachers, nets, queries, noise and students: what each setting gives, and what it costs.",
    ),
    "compare": Command(
        "compare.compare",
        "Compare teachers, neighbours, sums, rivals and no privacy on the same records, for a trial.",
    ),
    "plan": Command(
        "plan.plan",
        "Choose teachers, noise, threshold and queries for a wished epsilon, before any vote is cast.",
    ),
    "merge": Command(
        "party.merge", "Join the votes files of several owners who asked their own teachers the same queries."
    ),
    "local plan": Command(
        "local.plan",
        "Choose how many questions each voter answers, and with how much noise, and write the plan for all.",
    ),
    "local vote": Command(
        "local.vote",
        "Noise the answers of this party's voters, charge them to its ledger, and write what may leave it.",
    ),
    "local count": Command(
        "local.count",
        "Count the noisy answers of all parties: the answer to each question, and unbiased counts.",
    ),
    "party salt": Command(
        "party.salt", "Write a fresh salt for `pate party ids`, which one owner makes and all owners share."
    ),
    "party ids": Command(
        "party.ids",
        "Write salted digests of the ids whose teachers voted, so that nobody is with two owners (`pate "
        "merge`).",
    ),
    "party certificate": Command(
        "party.certificate", "Make this party's key and the card that goes into the agreement."
    ),
    "party init": Command(
        "party.init",
        "Write the agreement that all parties vote under: who takes part, what is asked, and how much noise.",
    ),
    "party join": Command(
        "party.join",
        "Take part in a vote: train this party's voters, vote with all others, and keep what was opened.",
    ),
    "party student": Command(
        "party.student", "Train a student on what the parties have opened together, and write release/."
    ),
}
_GROUPS = {name.split()[0] for name in COMMANDS if " " in name}  # commands of two words


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; bad input ends with one sentence and exit code 2."""
    name, *flags = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in _GROUPS and flags and not flags[0].startswith("-"):
        name = f"{name} {flags.pop(0)}"
    with exits.told("pate"):
        if name == "--version":
            print(f"pate {__version__}")
        elif name in ("-h", "--help", "--help-all"):
            print(help.overview({name: command.summary for name, command in COMMANDS.items()}))
        elif name in _GROUPS:
            below = {each: COMMANDS[each].summary for each in COMMANDS if each.startswith(f"{name} ")}
            print(help.overview(below))
        elif name not in COMMANDS:
            raise PateError(f"{name!r} is no command; {_near(name)}`pate --help` lists them all")
        else:
            if name == "run":
                flags = of_run(flags)
            topology.prepare(flags)
            devices.keep_programs(flags)
            help.call(name, COMMANDS[name].load(), flags)


def of_run(flags: Sequence[str]) -> list[str]:
    """The flags of `pate run`, with those of its --config in its place.

    >>> of_run(["adult", "--teachers", "125"])
    ['adult', '--teachers', '125']
    """
    if not any(flag.startswith("--config") for flag in flags):
        return list(flags)
    from pate_jax.runs import config_file

    return config_file.expanded(flags)


def _near(name: str) -> str:
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    return f"perhaps you meant `pate {near[0]}`; " if near else ""
