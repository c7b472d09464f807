"""What this machine remembers of each register that it has seen, apart from the register itself.

    $XDG_STATE_HOME/pate_jax/register.jsonl       the register of all runs that name no other one
    $XDG_STATE_HOME/pate_jax/registers/ID.json    of each register: where it lies, its lines, the last digest

So a register that is lost, not mounted, exchanged, or restored from an older copy is noticed. Where
`XDG_STATE_HOME` is unset, it is `~/.local/state`. The folder is open to its owner only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pate_jax.errors import PateError
from pate_jax.system import storage

_KIND = "register-anchor"


class Anchor(NamedTuple):
    """What is remembered of a register."""

    identity: str
    file: str
    lines: int
    digest: str  # of the last line


def home() -> Path:
    """The folder of what a user's runs remember together."""
    named = os.environ.get("XDG_STATE_HOME", "")
    try:
        base = Path(named) if os.path.isabs(named) else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise PateError(
            "no home folder is known, where this machine would remember every register: set XDG_STATE_HOME "
            "to a folder that lasts, or declare by --register none that somebody else counts"
        ) from error
    folder = base / "pate_jax"
    try:
        os.listdir(folder)
    except FileNotFoundError:
        pass  # it is made when something is first remembered
    except OSError as error:
        raise PateError(_no_use(folder, error)) from error
    return folder


def prepare() -> None:
    """Make the folder, before anything is written that it should remember."""
    for folder in (home(), home() / "registers"):
        try:
            storage.make_folder(folder, mode=0o700)
            os.chmod(folder, 0o700)
        except OSError as error:
            raise PateError(_no_use(folder, error)) from error


def _no_use(folder: Path, error: OSError) -> str:
    return (
        f"{folder}, where this machine remembers every register, is of no use ({error.strerror}): set "
        "XDG_STATE_HOME to a folder that you may write to and that lasts, or declare by --register none that "
        "somebody else counts"
    )


def default() -> Path:
    """The register of runs that name no other one."""
    return home() / "register.jsonl"


def check(known: Sequence[Anchor], file: Path, identity: str | None, digests: Sequence[str]) -> None:
    """Refuse a register that is not the one that was seen at its place, or has lost lines since.

    What is known has to be read before the register is, since another process may write both meanwhile. The
    identity is None where there is no register, or one that a crash left without its first line.
    """
    here = next((one for one in known if one.file == str(file)), None)
    if here is not None and identity != here.identity:
        what = "is not here" if identity is None else "is another register than the one that was here"
        raise PateError(
            f"{file} {what}: this machine has seen one of {here.lines} lines at this place. Mount or restore "
            f"it; if it is lost for good, remove {_path(here.identity)} and begin another, which knows "
            "nothing of those runs"
        )
    mine = next((one for one in known if one.identity == identity), None)
    if mine is not None and digests[mine.lines - 1 : mine.lines] != [mine.digest]:
        raise PateError(
            f"{file} is from an older copy: this machine has seen {mine.lines} lines of it, and the last of "
            "these is not there. Restore the newest copy; if there is none, remove "
            f"{_path(mine.identity)}, and repeat the command of each run that is missing, to enter it again"
        )


def see(file: Path, identity: str, lines: int, digest: str) -> None:
    """Remember a register as it is now."""
    prepare()
    wanted = Anchor(identity, str(file), lines, digest)
    if wanted not in known():
        storage.write_json(_path(identity), _KIND, wanted._asdict(), mode=0o600)


def _path(identity: str) -> Path:
    return home() / "registers" / f"{identity}.json"


def known() -> list[Anchor]:
    """All that is remembered."""
    folder = home() / "registers"
    return [_read(path) for path in sorted(folder.glob("*.json"))] if folder.is_dir() else []


def _read(path: Path) -> Anchor:
    body = storage.read_json(path, _KIND)
    wanted = {"identity": str, "file": str, "lines": int, "digest": str}
    if not all(type(body.get(name)) is kind for name, kind in wanted.items()) or body["lines"] < 1:
        raise PateError(f"{path} says nothing of a register: restore it from a backup")
    return Anchor(**{name: body[name] for name in wanted})
