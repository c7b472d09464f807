"""Data by name or from the user's own files, as NumPy arrays with ids: private, public and test parts."""

from __future__ import annotations

from pathlib import Path

from pate_jax.data import overlap
from pate_jax.data.dataset import Dataset, Part, Preprocessing
from pate_jax.data.own_files import from_files, pool
from pate_jax.errors import PateError

__all__ = ["NAMES", "Dataset", "Part", "Preprocessing", "from_files", "load", "pool"]

SYNTHETIC = ("strokes", "glyphs")
ARCHIVES = ("mnist", "fashion_mnist", "svhn", "cifar10", "adult")
NAMES = (*SYNTHETIC, *ARCHIVES)


def load(
    name: str = "strokes",
    *,
    data_dir: Path | str | None = None,
    manual_dir: Path | str | None = None,
    size: int | None = None,
    public_size: int | None = None,
    test_size: int | None = None,
    classes: int | None = None,
    difficulty: float | None = None,
    ids_are_stable: bool = False,
    equal_rows_are_coincidences: bool = False,
) -> Dataset:
    """The data set of this name.

    It is one of NAMES, or any set of images or tables with class labels in tensorflow-datasets. The sizes,
    `classes` (of glyphs) and `difficulty` shape the synthetic sets. `data_dir` is where archives are prepared
    (by default `$PATE_JAX_DATA` or `~/.cache/pate_jax`), and `manual_dir` is a folder with the archives.
    `ids_are_stable` declares that an unregistered archive will not change, so that a record's number in it is
    its id. `equal_rows_are_coincidences` declares that inputs that are both private and public are equal by
    chance.

    >>> load("strokes", size=50, public_size=5, test_size=5).private.inputs.shape
    (50, 28, 28, 1)
    """
    shape = {
        "size": size,
        "public_size": public_size,
        "test_size": test_size,
        "classes": classes,
        "difficulty": difficulty,
    }
    chosen = {option: value for option, value in shape.items() if value is not None}
    if name in SYNTHETIC:
        if manual_dir is not None:
            raise PateError(
                f"manual_dir={str(manual_dir)!r} holds archives, but {name} are generated; leave it out"
            )
        return overlap.declared(_synthetic(name, chosen), equal_rows_are_coincidences)
    for option, value in chosen.items():
        raise PateError(
            f"{option}={value} is for the synthetic sets {' and '.join(SYNTHETIC)}, not for {name}"
        )
    if name in ARCHIVES:
        from pate_jax.data import archives

        dataset = archives.load(name, data_dir=data_dir, manual_dir=manual_dir, ids_are_stable=ids_are_stable)
        return overlap.declared(dataset, equal_rows_are_coincidences)
    from pate_jax.data.archives import tfds

    dataset = tfds.load(
        name, data_dir=data_dir, manual_dir=manual_dir, known=NAMES, ids_are_stable=ids_are_stable
    )
    return overlap.declared(dataset, equal_rows_are_coincidences)


def _synthetic(name: str, chosen: dict) -> Dataset:
    from pate_jax.data import synthetic

    if name == "strokes" and "classes" in chosen:
        raise PateError(f"classes={chosen['classes']} is for glyphs; strokes are the ten digits")
    return getattr(synthetic, name)(**chosen)
