"""`pate risk` and `pate attack`: what single persons risk in a finished run, and attacks on it."""

from __future__ import annotations

import json as json_format
import sys
from typing import Annotated, Literal

from tyro.conf import OmitArgPrefixes

from pate_jax.cli.output import RunPath
from pate_jax.system import tasks
from pate_jax.system.tasks import HERE_ALONE, Where


def risk(
    run: RunPath,
    people: str | None = None,
    json: bool = False,
    where: Annotated[Where, OmitArgPrefixes] = HERE_ALONE,
) -> None:
    """Say what single persons risk in a finished run, exactly: SENSITIVE, and written into private/ only.

    Each person's records are taken out, everything else is left as it was bit for bit, and the laws of all
    released answers with and without that person are compared. The figures hold for these records and this
    person alone: they are no guarantee, they never replace the published epsilon, and they reveal something
    about people, so publish none of them. An attacker who knows everything but whether the person took part
    guesses right with `best guess` (0.5 is a coin), and recognises `caught` of the people at 1 false alarm in
    1,000. docs/guide/risk.md tells more. A command that was stopped goes on when it is repeated.

    Args:
        run: the run directory.
        people: all, a number (a sample), or a file with one id a line; unset: all, but 20 where teachers
            learn step by step, which takes seconds a person.
        json: print one JSON object in place of the table: sensitive too.
        where: who trains teachers again.
    """
    from pate_jax.audit.attacks import risk as risks
    from pate_jax.runs.directory import RunDirectory

    directory = RunDirectory(run)
    directory.existing(directory.settings, "run")  # before a lock makes a folder
    with directory.writing(), tasks.engine(where) as engine:
        found = risks.assess(directory, people, engine)
        risks.keep(found)
    print(json_format.dumps(found.to_dict()) if json else risks.terminal_page(found))


def attack(
    run: RunPath,
    only: Literal["mechanism", "canaries", "recovery", "poisoning", "membership", "reconstruction", "twin"]
    | None = None,
    draws: int | None = None,
    shadows: int = 128,
    canaries: int = 20_000,
    all: bool = False,
    json: bool = False,
    where: Annotated[Where, OmitArgPrefixes] = HERE_ALONE,
) -> None:
    """Attack a finished run: is its noise as charged, who took part, and do bad records change answers?

    The exit code is 1 where an attack shows that a promise is broken. Results are kept in
    private/attacks.json and on the owner's page. docs/guide/risk.md tells more.

    mechanism: is the noise that is drawn the noise that is charged for? Reads nothing private.

    canaries: what is epsilon at least, by planted records in a copy of the pipeline? Class sums and linear
    teachers; reads nothing private; needs pip install 'pate-jax[baselines]'.

    recovery: can votes be rebuilt by asking one question in other words? SENSITIVE.

    poisoning: how many bad records do the answers withstand, and what do flips and backdoors do? SENSITIVE.

    membership: who took part, by runs on random halves of the people? Crowds, linear teachers. SENSITIVE.

    reconstruction: does the student follow from what was released alone? SENSITIVE.

    twin: who took part in a twin of public inputs? The model card and the pages say what was found.

    Args:
        run: the run directory.
        only: one of the attacks; unset: all that this kind of run allows.
        draws: of each side; unset: enough for a bound of about 0.9 of the truth, 40 million at most.
        shadows: how often the run is repeated to guess who took part.
        canaries: records of an attacker's choosing, in all, that show what epsilon is at least.
        all: show every line in place of a summary of 25 lines; `--only` shows them all.
        json: print one JSON object.
        where: who does the work.
    """
    from pate_jax.audit.attacks import every
    from pate_jax.audit.attacks.attack import Flags
    from pate_jax.runs.directory import RunDirectory

    directory = RunDirectory(run)
    directory.existing(directory.settings, "run")  # before a lock makes a folder
    with directory.writing(), tasks.engine(where) as engine:
        flags = Flags(draws=draws, shadows=shadows, canaries=canaries, engine=engine)
        found = every.attacked(directory, only, flags)
    whole = found.text() if all or only is not None else found.brief()
    print(json_format.dumps(found.to_dict()) if json else whole)
    sys.exit(0 if found.holds else 1)
