"""All methods that are compared, by name."""

from __future__ import annotations

from collections.abc import Sequence

from pate_jax.errors import PateError
from pate_jax.runs import methods
from pate_jax.runs.baselines.training import needs_the_extra
from pate_jax.sweep.compare import (
    crowds,
    dpsgd,
    local_sums,
    local_votes,
    references,
    teachers,
    whole_run,
)
from pate_jax.sweep.compare.contender import Contender

CONTENDERS: tuple[Contender, ...] = (
    teachers.contender("teachers"),
    teachers.contender("250 teachers", (250,)),
    teachers.contender("1000 teachers", (1000,)),
    crowds.NEIGHBOURS,
    crowds.SUMS,
    *dpsgd.NETS,
    dpsgd.HEAD,
    local_votes.LOCAL_VOTES,
    local_sums.LOCAL_SUMS,
    references.PUBLIC_LABELS,
    references.NO_PRIVACY,
)


OF_NUMBERS: tuple[Contender, ...] = (
    whole_run.of_method("numbers", "sums", "their space, and their numbers if there are any"),
    whole_run.of_method("teachers of numbers", "teachers", "asked about, and their numbers if any", 60),
    references.PUBLIC_NUMBERS,
    references.NUMBERS_UNPROTECTED,
)


def of_numbers(names: Sequence[str] = ()) -> tuple[Contender, ...]:
    """The methods of these names that predict a number; all if none is named.

    >>> [one.name for one in of_numbers(["sums"])]
    ['sums']
    """
    known = {one.name: one for one in OF_NUMBERS}
    for name in names:
        if name not in known:
            raise PateError(f"method={name!r} predicts no number; the methods are {', '.join(known)}")
    return tuple(known[name] for name in names) or OF_NUMBERS


def named(names: Sequence[str] = ()) -> tuple[Contender, ...]:
    """The methods of these names; all if none is named.

    >>> [one.name for one in named(["sums"])]
    ['sums']
    """
    known = {one.name: one for one in (*CONTENDERS, *map(whole_run.of_method, methods.known()))}
    for name in names:
        if name not in known:
            raise PateError(f"method={name!r} is unknown; the methods are {', '.join(known)}")
    chosen = tuple(known[name] for name in names) or CONTENDERS
    if not {*chosen}.isdisjoint((*dpsgd.NETS, dpsgd.HEAD)):
        needs_the_extra(", or name other methods")
    return chosen
