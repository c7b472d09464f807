"""`pate risk` and `pate attack`: what single persons risk in a finished run, and attacks on it."""

from __future__ import annotations

import json as json_format
import sys
from typing import Literal

from pate_jax.cli.output import RunPath


def risk(run: RunPath, people: str | None = None, json: bool = False) -> None:
    """Say what single persons risk in a finished run, exactly: SENSITIVE, and written into private/ only.

    Each person's records are taken out, everything else is left as it was bit for bit, and the laws of all
    released answers with and without that person are compared. The figures hold for these records and this
    person alone: they are no guarantee, they never replace the published epsilon, and they reveal something
    about people, so publish none of them. An attacker who knows everything but whether the person took part
    guesses right with `best guess` (0.5 is a coin), and recognises `caught` of the people at 1 false alarm in
    1,000. docs/attacks.md tells more. A command that was stopped goes on when it is repeated.

    Args:
        run: the run directory.
        people: all, a number (a sample), or a file with one id a line; unset: all, but 20 where teachers
            learn step by step, which takes seconds a person.
        json: print one JSON object in place of the table: sensitive too.
    """
    from pate_jax.audit.attacks import risk as risks
    from pate_jax.runs.directory import RunDirectory

    directory = RunDirectory(run)
    directory.existing(directory.settings, "run")  # before a lock makes a folder
    with directory.writing():
        found = risks.assess(directory, people)
        risks.keep(found)
    print(json_format.dumps(found.to_dict()) if json else risks.terminal_page(found))


def attack(
    run: RunPath,
    only: Literal["mechanism", "canaries", "recovery", "poisoning", "membership", "reconstruction", "twin"]
    | None = None,
    draws: int | None = None,
    shadows: int = 128,
    canaries: int = 20_000,
    json: bool = False,
) -> None:
    """Attack a finished run: is its noise as charged, who took part, and do bad records change answers?

    `mechanism` lets the run's sampler answer one question millions of times, with and without one moved
    vote, and fails (exit code 1) if the draws tell more than the law that is charged for. `canaries` (class
    sums and linear teachers) plants records of an attacker's choosing in a copy of the pipeline, by coins,
    shows what epsilon is at least, and fails if that is more than is claimed; it needs
    pip install 'pate-jax[baselines]'. Neither reads anything private.
    `recovery` rebuilds votes from answers to one question in other words, and fails if an answer that is
    asked for again is drawn anew and nobody pays: SENSITIVE, since it compares with the votes.
    `poisoning` says how many bad records the answers withstand, and tries it: labels are flipped and a
    backdoor is put into some records, and what holds them is trained or counted again. SENSITIVE, since it is
    computed from the records. `membership` (crowds, linear teachers) repeats the run on random halves of its
    people and guesses who took part: SENSITIVE too. `reconstruction` trains the student again from public
    inputs, released answers and its key alone, with nothing private within reach, and guesses a hidden part
    of records: SENSITIVE too. `twin` guesses who took part in a twin of the run: public inputs with released
    labels take the place of its records, so the model card and the pages say what was found. All results are
    written into private/attacks.json, and into the owner's page.

    Args:
        run: the run directory.
        only: one of the attacks; unset: all that this kind of run allows.
        draws: of each side; unset: enough for a bound of about 0.9 of the truth, 40 million at most.
        shadows: how often the run is repeated to guess who took part.
        canaries: records of an attacker's choosing, in all, that show what epsilon is at least.
        json: print one JSON object.
    """
    from pate_jax.audit.attacks import every
    from pate_jax.audit.attacks.attack import Flags
    from pate_jax.runs.directory import RunDirectory

    directory = RunDirectory(run)
    directory.existing(directory.settings, "run")  # before a lock makes a folder
    with directory.writing():
        found = every.attacked(directory, only, Flags(draws=draws, shadows=shadows, canaries=canaries))
    print(json_format.dumps(found.to_dict()) if json else found.text())
    sys.exit(0 if found.holds else 1)
