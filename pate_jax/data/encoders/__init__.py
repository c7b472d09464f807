"""Frozen encoders: from one text, or one photo, to a vector of numbers, the same alone and in any batch.

An encoder is public. A run, its release and its certificate name it with a digest of all that it computes
from, and a student refuses another one. What an encoder was trained on is covered by no guarantee. Nothing is
ever downloaded: an encoder lies in an installed package, or where its owner says.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from jaxtyping import Float

from pate_jax.data.encoders import encoder, graphs, lite, tokens
from pate_jax.errors import PateError, translated
from pate_jax.system import storage
from pate_jax.system.storage import UNREADABLE

TEXT = "words"  # which encoder reads texts where nobody names one
PHOTOS = "lite0"
NAMES = (TEXT, "minilm", *lite.NAMES)
NOT_COVERED = "what this encoder was trained on is not covered by the guarantee"
_KEPT = "encoded"  # the kind of a file of vectors
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class Known(NamedTuple):
    """What a column and a release hold of an encoder."""

    name: str
    digest: str  # SHA-256 of all that it computes from
    width: int  # numbers for each record
    recipe: str = ""  # of an encoder of the owner's: `encoder.Recipe` as JSON

    def to_dict(self) -> dict[str, Any]:
        """As JSON; only encoders of owners have recipes."""
        return {name: value for name, value in self._asdict().items() if name != "recipe" or value}


class Encoder(Protocol):
    """Vectors of records, each by itself."""

    known: Known

    def __call__(self, records: Any) -> Float[np.ndarray, "record width"]:
        """One row of float32 for each record, whatever else is in the batch."""
        ...


class OfPhotos(Encoder, Protocol):
    """Vectors of photos with so many pixels each way."""

    side: int


class Choice(NamedTuple):
    """An encoder as it is chosen: a function of the owner's own, module:function, or a frozen one by name."""

    function: str = ""
    frozen: str = ""


def of_photos(name: str) -> bool:
    """Whether the encoder that a release knows by this name reads photos, and not texts.

    >>> of_photos("lite0-112"), of_photos("words"), of_photos("photos:mine-96")
    (True, False, True)
    """
    return name.startswith("photos:") or name.partition("-")[0] in lite.NAMES


def reads_photos(choice: str) -> bool:
    """The same of what `--encoder` names."""
    return of_photos(named(choice).known.name if is_path(choice) else choice)


def is_path(name: str) -> bool:
    """Whether a name is the place of a file or folder; names of encoders are none, whatever lies there.

    >>> is_path("models/mine.onnx"), is_path("words"), is_path("photos:mine-96")
    (True, False, False)
    """
    if not name or name.partition("-")[0] in NAMES:
        return False
    return name.endswith(".onnx") or "/" in name or Path(name).expanduser().is_dir()


def told(known: Known) -> str:
    """Preprocessing and pooling, in a sentence."""
    if known.recipe:
        return graphs.told(recipe(known))
    if of_photos(known.name):
        return lite.TOLD.format(side=known.name.partition("-")[2])
    return tokens.TOLD[known.name]


@translated(encoder.InputError)
def recipe(known: Known) -> encoder.Recipe:
    """What is done before and after the graph of an owner's encoder; refused where it cannot be told."""
    found = encoder.recipe_of(known.recipe)
    try:
        graphs.told(found)
    except UNREADABLE as error:
        raise PateError(f"the recipe of an encoder is damaged ({error!r}): restore the release") from error
    return found


def split(name: str | None) -> Choice:
    """What `--encoder` names: no release can hold a function, and every one can hold the name of the others.

    >>> split("mine.nets:clip").function, split("words").frozen, split(None)
    ('mine.nets:clip', 'words', Choice(function='', frozen=''))
    """
    return Choice(name or "") if _FUNCTION.fullmatch(name or "") else Choice(frozen=name or "")


def frozen(name: str | None) -> str:
    """The name of a frozen encoder; a function is refused."""
    found = split(name)
    if found.function:
        raise PateError(
            f"--encoder {found.function} is for `pate run` with --voters sums or neighbours: leave it out"
        )
    return found.frozen


_HELD: dict[Known, Path] = {}  # files of nets of photos in releases
_OPENED: dict[Known, Encoder] = {}  # of files and folders, by what a release knows of them


@lru_cache(maxsize=4)
def named(name: str, side: int | None = None) -> Encoder:
    """The encoder of this name, or of this file or folder; of photos with so many pixels each way."""
    if is_path(name):
        found = graphs.load(Path(name), side)
        _OPENED[found.known] = found
        return found
    if name == TEXT:
        return tokens.words()
    if name == "minilm":
        return tokens.minilm()
    base, _, known = name.partition("-")  # such as lite0-112, of photos with so many pixels each way
    if base in lite.NAMES and (known.isdecimal() or not known):
        return lite.load(base, side or int(known or lite.SIDE))
    raise PateError(
        f"--encoder {name} must be one of {', '.join(NAMES)}, an ONNX file, a folder that holds one, or a "
        "function of your own as module:function"
    )


def kept(encoder: Encoder, block: Any, folder: Path | None) -> Float[np.ndarray, "record width"]:
    """Vectors of a block of records, from a file of a folder that its content names, or else made and kept.

    So work that was stopped goes on where it was, and nothing is encoded twice. The files tell of private
    records, and only their owner may read them.
    """
    if folder is None or encoder.known.name == TEXT:  # which is as fast as the file
        return encoder(block)
    name = f"{encoder.known.name.replace(':', '-')}-{encoder.known.digest[:16]}-{_content(block)[:32]}.npz"
    file = folder / name
    if file.exists():
        found = storage.read_arrays(file, _KEPT)["vectors"]
        if found.shape == (len(block), encoder.known.width):
            return found
    made = encoder(block)
    storage.write_arrays(file, _KEPT, {"vectors": made}, mode=0o600, compressed=False)
    return made


def _content(block: Any) -> str:
    """A digest of the texts or photos of a block."""
    if isinstance(block, np.ndarray):
        return storage.digest(block)
    joined = "\0".join(f"{len(text)}:{text}" for text in block)
    return hashlib.sha256(joined.encode(errors="replace")).hexdigest()


def photos(name: str, side: int | None = None) -> OfPhotos:
    """The encoder of this name, which reads photos with so many pixels each way."""
    if not reads_photos(name):
        raise PateError(f"--encoder {name} reads no photos: name {PHOTOS}")
    return cast(OfPhotos, named(name, side))


def hold(known: Known, release: Path) -> None:
    """Remember that a release holds the encoder that its student knows, where its package may be missing."""
    if of_photos(known.name) and not known.recipe and (release / encoder.FILE).is_file():
        _HELD[known] = release / encoder.FILE


def _held(known: Known) -> Encoder | None:
    """The encoder from a release, if that holds it and no package does; refused where it is another."""
    name, _, side = known.name.partition("-")
    if known not in _HELD or lite.place(name) is not None:
        return None
    content = storage.read_bytes(_HELD[known])
    if encoder.digest(content) != known.digest:
        raise PateError(f"{_HELD[known]} is another encoder than its student names: restore the release")
    return lite.Net(name, int(side), content)


def same(known: Known, place: str | None = None) -> Encoder:
    """The encoder that a student or a run knows, from its place; refused where another one is there."""
    if not known.recipe:
        if place is not None and place != known.name.partition("-")[0]:
            raise PateError(
                f"--encoder {place} is another than {known.name!r}, which is needed: leave it out"
            )
        if (net := _held(known)) is not None:
            return net
        found = named("" if is_path(known.name) else known.name)  # a release names no place
    elif place is None:
        if known not in _OPENED:
            raise PateError(
                f"the encoder {known.name!r} with the digest {known.digest[:16]}... is needed, and no "
                "release holds it: name its file or folder with --encoder"
            )
        return _OPENED[known]
    else:
        found = named(place, recipe(known).side or None)
    if found.known != known:
        raise PateError(
            f"the encoder {found.known.name!r} that is installed here has the digest "
            f"{found.known.digest[:16]}..., and {known.name!r} with {known.digest[:16]}... is needed: use "
            "the version that was learned with"
        )
    return found
