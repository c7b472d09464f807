"""A mutation is a known mistake, how it gets into a copy of the pipeline, and the check that must catch it.

A check is called twice: with nothing changed it must find nothing, and with the mistake in place it must find
something, for the reason that is stated. Tests that are named as they stand in their own file, without
arguments of a mutation's choice, run there with nothing changed, and are not called here for that again. What
was tried and caught is printed when the tests end.
"""

import contextlib
import functools
import inspect
import re
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import hypothesis
import mpmath
import pytest

from pate_jax.errors import PateError
from pate_jax.runs.directory import RunDirectory

Patch = pytest.MonkeyPatch
Check = Callable[[Patch, Path], list[str]]
# What makes a test fail: not any exception, or a slip in a mutation would pass for a catch.
FAILURES = (AssertionError, pytest.fail.Exception, PateError, ArithmeticError, RuntimeWarning)


class Mutation(NamedTuple):
    """One known mistake."""

    mistake: str
    inject: Callable[[Patch], None]
    check: Check
    because: str  # a pattern that the finding must match
    traced: bool = False  # it changes a program that JAX keeps


def source(place: object, name: str, old: str, new: str) -> Callable[[Patch], None]:
    """The function `name` of a module or class with one expression of its text exchanged."""

    def inject(patch: Patch) -> None:
        real = getattr(place, name)
        text = textwrap.dedent(inspect.getsource(real))
        assert text.count(old) == 1, (
            f"{name} holds {old!r} {text.count(old)} times: bring the mutation up to date"
        )
        space: dict = {}
        home = sys.modules[real.__module__].__dict__
        exec(
            compile(f"from __future__ import annotations\n{text.replace(old, new)}", "<mutation>", "exec"),
            home,
            space,
        )
        patch.setattr(place, name, space[name])

    return inject


def replaced(place: object, name: str, make: Callable) -> Callable[[Patch], None]:
    """The function `name` replaced by what `make` makes of it."""
    return lambda patch: patch.setattr(place, name, make(getattr(place, name)))


class Tried(NamedTuple):
    """What came of one."""

    mistake: str
    finding: str | None


TRIED: list[Tried] = []
_CLEAN: set[object] = set()


def case(mistake: str, inject: Callable[[Patch], None], check: Check, because: str, **more) -> object:
    """A mutation as a parameter of a test; `long=True` leaves it to the long tests."""
    marks = [pytest.mark.long] if more.pop("long", False) else []
    return pytest.param(Mutation(mistake, inject, check, because, **more), id=mistake, marks=marks)


def is_caught(mutation: Mutation, folder: Path) -> None:
    """Check, inject, check again."""
    if id(mutation.check) not in _CLEAN and not getattr(mutation.check, "runs_by_itself", False):
        with Patch.context() as patch:
            assert mutation.check(patch, folder / "clean") == []
        _CLEAN.add(id(mutation.check))
    with Patch.context() as patch, _programs(mutation.traced):
        mutation.inject(patch)
        found = mutation.check(patch, folder / "mutated")
    _record(mutation.mistake, mutation.because, found)


def _record(mistake: str, because: str, found: list[str]) -> None:
    reason = [one for one in found if re.search(because, one)]
    TRIED.append(Tried(mistake, reason[0] if reason else None))
    assert reason, f"{mistake}: found {found}, but nothing like {because!r}"


@contextlib.contextmanager
def _programs(traced: bool):
    """Programs are compiled anew while a mutation changes them, and those from before are there again after.

    JAX keeps programs apart by the values of its options. One that hardly changes any gets a new value.
    """
    if not traced:
        yield
        return
    import jax

    from pate_jax.ensemble import training

    usual, apart = jax.config.jax_embedded_constants_max_bytes, 1 + len(TRIED)
    compiled = functools.lru_cache(training._compiled.__wrapped__)
    with Patch.context() as patch:
        patch.setattr(training, "_compiled", compiled)
        jax.config.update("jax_embedded_constants_max_bytes", usual + apart)
        try:
            yield
        finally:
            jax.config.update("jax_embedded_constants_max_bytes", usual)


def fails(*tests: Callable[[], object]) -> Check:
    """The named tests of this project: what they say where they fail."""

    def check(patch: Patch, folder: Path) -> list[str]:
        found = []
        for test in tests:
            try:
                digits = getattr(sys.modules[_inner(test).__module__], "DIGITS", 50)
                with mpmath.workdps(digits), _until_it_fails(_inner(test)):
                    test()
            except FAILURES as error:
                found.append(
                    f"{_name(test)}: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
                )
        return found

    check.runs_by_itself = all(map(_is_whole, tests))
    return check


def in_a_folder(test: Callable[[Path], object]) -> Check:
    """The same for a test that wants a folder."""
    return lambda patch, folder: fails(functools.partial(test, folder))(patch, folder)


def _is_whole(test: Callable) -> bool:
    """Whether the default tests call exactly this: a test of a module, without arguments or marks."""
    if not inspect.isfunction(test) or not test.__name__.startswith("test_"):
        return False
    home = sys.modules[test.__module__]
    marked = hasattr(test, "pytestmark") or hasattr(home, "pytestmark")
    return vars(home).get(test.__name__) is test and not marked and not inspect.signature(test).parameters


@contextlib.contextmanager
def _until_it_fails(test: Callable):
    """A property ends at its first counterexample: nobody looks for a smaller one, or for others."""
    name, phases = "_hypothesis_internal_use_settings", (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    given = getattr(test, name, None)
    if given is None:
        yield
        return
    setattr(test, name, hypothesis.settings(given, phases=phases, report_multiple_bugs=False))
    try:
        yield
    finally:
        setattr(test, name, given)


def _inner(test) -> Callable:
    return getattr(test, "func", test)


def _name(test) -> str:
    return f"{_inner(test).__module__}.{_inner(test).__qualname__}"


def verified(run: RunDirectory, deep: bool = False) -> list[str]:
    """What `pate verify` says of a run."""
    from pate_jax.audit import verify

    return verify.of_run(run, deep=deep, retrained=6).of("failed")


class Edit(NamedTuple):
    """One known mistake, or a forgery, as it lies on disk: files of an honest run that somebody changed."""

    mistake: str
    honest: Callable[[], RunDirectory]
    change: Callable[[RunDirectory], None]
    because: str
    deep: bool = False


def edit(mistake: str, honest, change, because: str, *, deep: bool = False) -> object:
    """An edit as a parameter of a test; deep ones are left to the long tests."""
    marks = [pytest.mark.long] if deep else []
    return pytest.param(Edit(mistake, honest, change, because, deep), id=mistake, marks=marks)


def is_found(one: Edit, folder: Path) -> None:
    """Verify an honest run, change a copy of it, verify that."""
    honest = one.honest()
    if (honest.root, one.deep) not in _CLEAN:
        assert verified(honest, one.deep) == []
        _CLEAN.add((honest.root, one.deep))
    shutil.copytree(honest.root, folder / "run")
    run = RunDirectory(folder / "run")
    one.change(run)
    found = verified(run, one.deep)
    _record(one.mistake, one.because, found)


def made(make: Callable[[Path], RunDirectory], deep: bool = False) -> Check:
    """A run that the mutated pipeline makes, looked at by the honest verifier; or that it refuses to make."""

    def check(patch: Patch, folder: Path) -> list[str]:
        try:
            run = make(folder)
        except PateError as error:
            return [f"refused: {error}"]
        patch.undo()
        return verified(run, deep)

    return check
