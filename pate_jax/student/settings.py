"""What a student may be told: its method, its net and their settings, with recipes for what is left open."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from pate_jax.errors import PateError

Method = Literal["auto", "supervised", "vat", "gan", "fixmatch", "ridge", "tandem"]
FOR_IMAGES = ("gan", "fixmatch", "ridge", "tandem")  # methods that need images


@dataclass(frozen=True)
class StudentConfig:
    """How the student learns; everything here is free of privacy cost. Unset values follow the method."""

    method: Method = "auto"
    """supervised: answered queries only; vat: answers stay the same under the worst small change of any
    public input; gan: PATE-G, a generator to tell from public images; fixmatch: confident guesses on public
    images are taught under strong distortion; ridge: least squares on likeness to the answered images, which
    it holds, in seconds; tandem: ridge, and a net that learns what it says of every public input, together.
    auto: fixmatch for images, vat for tables."""
    net: str | None = None
    """Its net; unset: `cnn` for images, `table` for tables."""
    maps: tuple[int, ...] | None = None
    """Feature maps of each convolution of `cnn`, `pate2017` and `tandem`; unset: the net's own."""
    steps: int | None = None
    """Steps of the optimiser."""
    batch_size: int | None = None
    """Answered queries a step; unset: 64, 16 for fixmatch, to which more steps are worth more."""
    unlabelled: int | None = None
    """Public inputs a step that need no answer, as a multiple of batch_size."""
    learning_rate: float | None = None
    """Peak rate of AdamW, reached after a tenth of the steps, then down a cosine to zero."""
    weight_decay: float = 1e-3
    """Decoupled weight decay."""
    label_smoothing: float | None = None
    """Share of each label spread over all classes, since a few answers are wrong; unset: 0.1, and 0 for
    fixmatch, which would hardly ever be sure of a guess."""
    shift: int | None = None
    """Images are moved by up to so many pixels in each direction at every step; unset: 3, 2 for fixmatch."""
    flip: bool = False
    """Also exchange left and right, in half of the cases: for photographs and clothes, not for characters."""
    average: float = 0.998
    """How much of the running average of the weights a step keeps; the average is what is published."""
    weight: float | None = None
    """Weight of the part of the loss that needs no answers."""
    confidence: float = 0.95
    """fixmatch: a guess counts if its probability is at least this."""
    strength: float = 1.0
    """fixmatch: how strong the distortions are; 1 turns by up to 30 degrees."""
    distort_answers: bool = True
    """fixmatch: distort answered images too, as strongly; the paper only moves them."""
    alignment: float = 0.0
    """fixmatch, tandem: how far guesses are pulled towards equally frequent classes, 0 to 1: for public pools
    that are known to be balanced."""
    radius: float = 0.2
    """vat: length of the worst change, as a share of an input's typical distance from the pool's mean."""
    entropy: float = 0.3
    """vat: weight of the entropy of the guesses on public inputs, beside the adversarial part."""
    latent: int = 64
    """gan: numbers that the generator starts from."""
    hold_out: float = 0.0
    """Share of the answers kept from training, to set the temperature and for early stopping."""
    patience: int = 0
    """Stop after so many hundreds of steps without a smaller loss on the answers held out; 0: never."""
    devices: int | None = None
    """Devices to spread each batch over; unset: all for images that divide the batch, one for tables."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "learning_rate", "unlabelled", "radius", "latent", "devices"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise PateError(f"student {name}={value} must be above 0")
        for name in ("label_smoothing", "average", "hold_out"):
            if not 0 <= (getattr(self, name) or 0) < 1:
                raise PateError(f"student {name}={getattr(self, name)} must be at least 0 and below 1")
        for name in ("confidence", "alignment"):
            if not 0 <= getattr(self, name) <= 1:
                raise PateError(f"student {name}={getattr(self, name)} must be between 0 and 1")
        for name in ("shift", "weight_decay", "weight", "strength", "entropy", "patience"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise PateError(f"student {name}={value} must be at least 0")
        if self.patience and not self.hold_out:
            raise PateError(f"student patience={self.patience} needs answers to judge by: set hold_out=0.1")

    def resolved(self, *, image: bool) -> StudentConfig:
        """The same with the method chosen and every unset value of the recipe filled in.

        >>> StudentConfig(method="supervised").resolved(image=True).steps
        1200
        """
        method = ("fixmatch" if image else "vat") if self.method == "auto" else self.method
        if method in FOR_IMAGES and not image:
            raise PateError(f"student method={method!r} needs images; choose vat or supervised for tables")
        recipe = {**_ANY, **(_IMAGES if image else _TABLES)[method]}
        missing = {name: value for name, value in recipe.items() if getattr(self, name) is None}
        return dataclasses.replace(self, method=method, **missing)


_ANY: dict[str, Any] = {"label_smoothing": 0.1, "shift": 3, "batch_size": 64}
_SURE: dict[str, Any] = {"label_smoothing": 0.0, "shift": 2, "batch_size": 16}
_IMAGES: dict[str, dict[str, Any]] = {
    "supervised": {"net": "cnn", "steps": 1200, "learning_rate": 5e-3, "unlabelled": 1, "weight": 0.0},
    "vat": {"net": "cnn", "steps": 2000, "learning_rate": 3e-3, "unlabelled": 2, "weight": 1.0},
    "gan": {"net": "cnn", "steps": 2000, "learning_rate": 1e-3, "unlabelled": 1, "weight": 1.0},
    "fixmatch": {"net": "cnn", "steps": 6000, "learning_rate": 5e-3, "unlabelled": 4, "weight": 1.0, **_SURE},
    "ridge": {"net": "patches"},
    "tandem": {"net": "tandem", "steps": 8000, "learning_rate": 5e-3, "unlabelled": 1, "weight": 0.0},
}
_TABLES: dict[str, dict[str, Any]] = {
    "supervised": {"net": "table", "steps": 1200, "learning_rate": 5e-3, "unlabelled": 1, "weight": 0.0},
    "vat": {"net": "table", "steps": 1500, "learning_rate": 3e-3, "unlabelled": 4, "weight": 1.0},
}
