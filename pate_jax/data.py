"""Data by name: the synthetic sets, the archives, and the user's own files, all as NumPy arrays with ids."""

from __future__ import annotations

from pathlib import Path

from pate_jax.dataset import Dataset, Part, Preprocessing
from pate_jax.errors import PateError

__all__ = ["NAMES", "Dataset", "Part", "Preprocessing", "load"]

SYNTHETIC = ("strokes", "glyphs")
ARCHIVES = ("mnist", "fashion_mnist", "svhn", "cifar10", "adult")
NAMES = (*SYNTHETIC, *ARCHIVES)


def load(
    name: str = "strokes",
    *,
    data_dir: Path | str | None = None,
    manual_dir: Path | str | None = None,
    size: int | None = None,
    classes: int | None = None,
    difficulty: float | None = None,
) -> Dataset:
    """The data set of this name.

    `size` (private records), `classes` (of glyphs) and `difficulty` shape the synthetic sets; `data_dir` is where
    archives are prepared (`$PATE_JAX_DATA`, else `~/.cache/pate_jax`) and `manual_dir` where the user has put them.

    >>> load("strokes", size=50).private.inputs.shape
    (50, 28, 28, 1)
    """
    options = {"size": size, "classes": classes, "difficulty": difficulty}
    chosen = {option: value for option, value in options.items() if value is not None}
    if name in SYNTHETIC:
        from pate_jax import procedural

        if name == "strokes" and classes is not None:
            raise PateError(f"classes={classes} shapes glyphs; strokes are the ten digits")
        return getattr(procedural, name)(**chosen)
    if chosen:
        option, value = next(iter(chosen.items()))
        raise PateError(
            f"{option}={value} shapes the synthetic sets ({', '.join(SYNTHETIC)}); leave it out for {name}"
        )
    if name in ARCHIVES:
        from pate_jax import archives

        return archives.load(name, data_dir=data_dir, manual_dir=manual_dir)
    raise PateError(f"data={name!r} is not known; choose one of {', '.join(NAMES)}")
