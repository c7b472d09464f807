"""The error that this package raises for input it cannot accept, its warning, and checks in one line.

The checks take values by name, and a `remedy` that is said behind the rule. A number that is None was not
given, and passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class PateError(ValueError):
    """Input that cannot be accepted; the message names the value and the remedy.

    >>> raise PateError("delta=0 must be between 0 and 1")
    Traceback (most recent call last):
    ...
    pate_jax.errors.PateError: delta=0 must be between 0 and 1
    """


class SharedInputs(PateError):
    """Inputs of a public part are private ones too, and nobody declared that they may be.

    >>> raise SharedInputs("pool.npz: 3 of 10 inputs are private ones too: remove them")
    Traceback (most recent call last):
    ...
    pate_jax.errors.SharedInputs: pool.npz: 3 of 10 inputs are private ones too: remove them
    """


class PateWarning(UserWarning):
    """Less is promised than it seems, or more is spent; the message names the remedy.

    >>> import warnings
    >>> with warnings.catch_warnings(action="error", category=PateWarning):
    ...     warnings.warn("random_state=0 makes this fit NOT private", PateWarning)
    Traceback (most recent call last):
    ...
    pate_jax.errors.PateWarning: random_state=0 makes this fit NOT private
    """


@contextmanager
def translated(kind: type[Exception]) -> Iterator[None]:
    """Raise errors of a kind, whose messages are whole sentences, as this package's own.

    >>> with translated(KeyError):
    ...     raise KeyError("no such ward")
    Traceback (most recent call last):
    ...
    pate_jax.errors.PateError: 'no such ward'
    """
    try:
        yield
    except kind as error:
        raise PateError(str(error)) from error.__cause__


def at_least(least: float, remedy: str = "", /, **values: float | None) -> None:
    """Refuse what is smaller.

    >>> at_least(1, "; leave it out for the default", epochs=None, teachers=0)
    Traceback (most recent call last):
    ...
    pate_jax.errors.PateError: teachers=0 must be at least 1; leave it out for the default
    """
    for name, value in values.items():
        if value is not None and not value >= least:
            raise PateError(f"{name}={value} must be at least {least:g}{remedy}")


def above(bound: float, remedy: str = "", /, **values: float | None) -> None:
    """Refuse what is not larger, and what is not a number.

    >>> above(0, learning_rate=float("nan"))
    Traceback (most recent call last):
    ...
    pate_jax.errors.PateError: learning_rate=nan must be above 0
    """
    for name, value in values.items():
        if value is not None and not value > bound:
            raise PateError(f"{name}={value} must be above {bound:g}{remedy}")


def within(low: float, high: float, remedy: str = "", /, **values: float | None) -> None:
    """Refuse what is smaller or larger.

    >>> within(1, 4096, " pixels", image_size=5000)
    Traceback (most recent call last):
    ...
    pate_jax.errors.PateError: image_size=5000 must be from 1 to 4096 pixels
    """
    for name, value in values.items():
        if value is not None and not low <= value <= high:
            raise PateError(f"{name}={value} must be from {low:g} to {high:g}{remedy}")


def one_of(choices: Iterable[str], remedy: str = "", /, **values: object) -> None:
    """Refuse a word that is no choice; None is none either.

    >>> one_of(("record", "user"), by="household")
    Traceback (most recent call last):
    ...
    pate_jax.errors.PateError: by='household' must be one of record, user
    """
    known = tuple(choices)
    for name, value in values.items():
        if value not in known:
            raise PateError(f"{name}={value!r} must be one of {', '.join(known)}{remedy}")
