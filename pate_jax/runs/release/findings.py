"""What an examination found: each sentence passed, failed or could not be checked, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from pate_jax.errors import PateError

Outcome = Literal["passed", "failed", "unchecked"]
_SHOWN = {"passed": "ok", "failed": "FAILED", "unchecked": "open"}
_WIDTH = 12  # of the column of names
_MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, OSError)


class Finding(NamedTuple):
    """One sentence, and whether it speaks well of what was examined."""

    outcome: Outcome
    text: str


def passed(text: str) -> Finding:
    """Something that holds."""
    return Finding("passed", text)


def failed(text: str) -> Finding:
    """Something that does not hold."""
    return Finding("failed", text)


def unchecked(text: str) -> Finding:
    """Something that could not be checked, with the reason."""
    return Finding("unchecked", text)


def judged(faults: Iterable[str], otherwise: str) -> Iterator[Finding]:
    """The faults as failures, or one sentence that says what holds where there are none.

    >>> list(judged([], "all is well"))
    [Finding(outcome='passed', text='all is well')]
    """
    failures = [failed(fault) for fault in faults]
    yield from failures or [passed(otherwise)]


class Ended(Exception):
    """A check can go no further; the finding says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.text)
        self.finding = finding


class Examination(NamedTuple):
    """The findings of every check, by the name of the check, in the order in which they were made."""

    subject: str
    checks: Mapping[str, tuple[Finding, ...]]

    def of(self, outcome: Outcome) -> list[str]:
        """All findings of one outcome, each with its check's name in front.

        >>> Examination("a run", {"votes": (passed("they add up"),)}).of("passed")
        ['votes: they add up']
        """
        return [
            f"{name}: {finding.text}"
            for name, found in self.checks.items()
            for finding in found
            if finding.outcome == outcome
        ]

    def to_dict(self) -> dict[str, Any]:
        """As JSON: the names of all checks, and the findings by outcome."""
        outcomes: tuple[Outcome, ...] = ("passed", "failed", "unchecked")
        return {
            "subject": self.subject,
            "checked": list(self.checks),
            **{outcome: self.of(outcome) for outcome in outcomes},
        }

    def text(self) -> str:
        """For a terminal: a line for each finding, failures last, and a count.

        >>> print(Examination("a run", {"votes": (passed("they add up"),)}).text())
        Examined a run
          ok      votes        they add up
        1 passed, 0 failed, 0 could not be checked.
        """
        order: tuple[Outcome, ...] = ("passed", "unchecked", "failed")
        lines = [f"Examined {self.subject}"]
        for outcome in order:
            for name, found in self.checks.items():
                texts = [finding.text for finding in found if finding.outcome == outcome]
                lines += [f"  {_SHOWN[outcome]:<8}{name:<{_WIDTH}} {text}" for text in texts]
        counts = {outcome: len(self.of(outcome)) for outcome in order}
        lines.append(
            f"{counts['passed']} passed, {counts['failed']} failed, "
            f"{counts['unchecked']} could not be checked."
        )
        return "\n".join(lines)


def examine(subject: str, checks: Mapping[str, Callable[[], Iterable[Finding]]]) -> Examination:
    """Make every check; one that meets a file it cannot read fails with that sentence, and the others go on.

    >>> examine("a run", {"votes": lambda: [failed("they do not add up")]}).of("failed")
    ['votes: they do not add up']
    """
    return Examination(subject, {name: tuple(made(check)) for name, check in checks.items()})


def made(*checks: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """What these checks find; one that ends early, or meets a file it cannot read, stops no other.

    >>> def lost() -> Iterator[Finding]:
    ...     raise Ended(unchecked("nothing was voted on yet"))
    >>> [finding.outcome for finding in made(lost, lambda: [passed("they add up")])]
    ['unchecked', 'passed']
    """
    for check in checks:
        try:
            yield from check()
        except Ended as end:
            yield end.finding
        except PateError as error:
            yield failed(str(error))
        except _MALFORMED as error:  # a forged file can hold anything: it fails the check, with what was met
            yield failed(f"a file is not of the form that this version writes: {error!r}")
