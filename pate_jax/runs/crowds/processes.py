"""A crowd's run over several processes, one on each host: each counts its own part of the voters.

Every process opens the data. The first owns the run directory, its secret and its noise, and says what comes
next: it sends the others the public side that voters are compared in, and all add their tables up. The others
write nothing, and end once the last table is counted. Counts and sums are whole numbers, so the table is that
of one process, bit for bit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from pate_jax import crowd as voting
from pate_jax.crowd.tables import Seen, look
from pate_jax.errors import PateError
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.crowds import public_side, scans
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.crowds.teachers import Chosen
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.record import COMPARED
from pate_jax.runs.settings import RunConfig
from pate_jax.system import devices

_OPEN, _COUNT, _STOP, _DONE = b"o", b"c", b"s", b"d"  # what the first process says to the others


class Ended(NamedTuple):
    """How the work of all processes ended: which go on, and the teachers that were chosen, if they were."""

    goes_on: bool
    chosen: Chosen | None


def together(config: RunConfig, lead: Callable[[], Chosen | None]) -> Ended:
    """Do with all processes what the first one leads; the first goes on, and all where teachers are chosen.

    An error of one of them ends all with the same sentence.
    """
    if devices.processes() == 1:
        return Ended(True, None)
    first, chosen = devices.is_first(), None
    if first:
        with _leading():
            chosen = lead()
    else:
        _follow(config)
    planned = json.loads(devices.from_first(json.dumps(chosen and chosen.planned).encode()))
    if planned is not None:
        return Ended(True, Chosen(planned))
    devices.leave()  # it waits for all
    return Ended(first, None)


def check(crowd: Crowd) -> None:
    """Check the settings of a crowd and who votes, in every process, before anything is recorded."""
    _say(_OPEN)
    with devices.failing_together():
        _open(crowd)


def ask_to_count(made: Mapping[str, np.ndarray]) -> None:
    """Let the other processes count their voters on this public side, as this one does next."""
    if devices.processes() > 1:
        _say(_COUNT, public_side.packed(made))
        with devices.failing_together():
            pass  # the others read what was sent


@contextmanager
def _leading() -> Iterator[None]:
    """Tell the others how it ended, unless they know."""
    try:
        yield
    except BaseException as error:
        if not devices.knows_of(error):
            _say(_STOP, devices.sentence(error).encode(errors="replace"))
        raise
    _say(_DONE)


def _follow(config: RunConfig) -> None:
    """Do what the first process says."""
    # which kind votes is said with the public side
    wanted = config.crowd_as("neighbours") if config.who == "auto" else config.crowd
    crowd = crowd_inputs.made(RunDirectory(config.directory), config.data, wanted)
    seen: Seen | None = None  # the vectors of steps, which are the same in each
    while (said := devices.from_first(b""))[:1] != _DONE:
        if said[:1] == _STOP:
            raise PateError(said[1:].decode())
        if said[:1] == _OPEN:
            with devices.failing_together():
                _open(crowd)
        else:
            with devices.failing_together():
                plan = public_side.unpacked(said[1:])
            if plan.weights is not None and seen is None:
                seen = look(plan.space, plan.scaling, crowd.people)
            voting.table(plan, crowd.people, seen)


def _open(crowd: Crowd) -> None:
    if COMPARED in crowd.run.record.read() and devices.processes() > 1:
        raise PateError(
            f"{crowd.run.root} holds out voters to compare students, and was begun in one process: leave "
            "out --processes, or choose another --out"
        )
    if crowd.dataset.scan is None:
        crowd.mu, crowd.everybody  # noqa: B018  # checked now
    else:
        crowd.mu  # noqa: B018  # checked now
        scans.check(crowd)


def _say(what: bytes, content: bytes = b"") -> None:
    devices.from_first(what + content)
