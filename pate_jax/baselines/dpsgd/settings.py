"""What a DP-SGD training is made with: a frozen description, and the public rules that choose one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from pate_jax.accounting.inputs import check_delta
from pate_jax.errors import PateError
from pate_jax.models import names

LARGEST_MICROBATCH = 1024  # the sum of so many clipped gradients fits 32 bits (`clipping`)
LEAST_MULTIPLIER = 0.25  # below, hardly anything is promised
LINEAR: names.Net = "linear"  # the net that is one matrix on a public space
_OF_STUDENTS = ("patches", "tandem")  # nets that hold public images
CLIPS = 1e-6, 1e6  # whose squares and whose share of a grid are well within float32
_LEAST = {"steps": 1, "batch": 1, "microbatch": 1}


@dataclass(frozen=True)
class Settings:
    """How a net is trained by DP-SGD. Nothing here may depend on the private records but by public rules.

    >>> Settings(steps=300, batch=256).clip
    0.1
    """

    epsilon: float = 3.0  # what all steps together may cost at delta
    delta: float = 1e-5
    neighbours: Literal["added", "changed"] = "added"  # or removed; or changed as well
    steps: int = 1000
    batch: int = 512  # expected size: each record takes part in each step with chance batch / records
    clip: float = 0.1  # the longest gradient of one record
    learning_rate: float = 2.0
    momentum: float = 0.9
    average: float = 0.99  # of the parameters of earlier steps, which costs nothing; 0: the last ones
    net: names.Net = "papernot2021"
    space: names.Space | None = None  # of the net linear; unset: what suits the inputs
    activation: names.Activation = "tanh"
    scale: float = 2.0  # these three are the tempered sigmoid's; never learned, as that would cost privacy
    temperature: float = 2.0
    offset: float = 1.0
    microbatch: int = 64  # records computed together
    noise_multiplier: float | None = None  # in units of clip; unset: the least that epsilon allows

    def __post_init__(self) -> None:
        check_delta(self.delta)
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise PateError(f"{name}={value!r} must be a whole number of at least {least}")
        if self.microbatch > LARGEST_MICROBATCH:
            raise PateError(f"microbatch={self.microbatch} must be at most {LARGEST_MICROBATCH}")
        for name in ("epsilon", "clip", "learning_rate", "scale", "temperature"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise PateError(f"{name}={value} must be a finite number above 0")
        if not CLIPS[0] <= self.clip <= CLIPS[1]:
            raise PateError(f"clip={self.clip} must be from {CLIPS[0]:g} to {CLIPS[1]:g}")
        if self.neighbours not in ("added", "changed"):
            raise PateError(f"neighbours={self.neighbours!r} must be added or changed")
        if not math.isfinite(self.offset):
            raise PateError(f"offset={self.offset} must be a finite number")
        for name in ("momentum", "average"):
            if not 0 <= getattr(self, name) < 1:
                raise PateError(f"{name}={getattr(self, name)} must be at least 0 and below 1")
        if self.net in _OF_STUDENTS:
            raise PateError(
                f"net={self.net!r} holds public images that a student was taught with, and is not trained by "
                "DP-SGD: choose linear, which sees images by their typical patches, or a net of layers"
            )
        if self.space is not None and self.net != LINEAR:
            raise PateError(f"space={self.space!r} is for net={LINEAR!r}, not {self.net!r}: leave it out")
        given = self.noise_multiplier
        if given is not None and not (math.isfinite(given) and given >= LEAST_MULTIPLIER):
            raise PateError(
                f"noise_multiplier={given} must be a finite number of at least {LEAST_MULTIPLIER}"
            )

    @property
    def shape_of_activation(self) -> dict[str, float]:
        """The tempered sigmoid's numbers as `models.build` takes them; none for other activations.

        >>> Settings(activation="relu").shape_of_activation
        {}
        """
        if self.activation != "tempered_sigmoid":
            return {}
        return {"scale": self.scale, "temperature": self.temperature, "offset": self.offset}


def choose(
    records: int,
    classes: int,
    *,
    image: bool,
    epsilon: float = 3.0,
    delta: float = 1e-5,
    parameters: int | None = None,
    **changed: Any,
) -> Settings:
    """Settings for so many records, chosen by rules that read public numbers only (docs/proofs/dpsgd.md).

    The number of records counts as public here: it fixes the chance of taking part in a step. Where the
    number of parameters is given, few records and a small epsilon get fewer steps with larger batches.

    >>> choose(60_000, 10, image=True, epsilon=2.93).batch
    1024
    >>> few = choose(4000, 2, image=False, epsilon=1.0, parameters=3490)
    >>> few.steps, few.batch, round(few.learning_rate, 2)
    (100, 200, 1.04)
    """
    if records < 1 or classes < 2:
        raise PateError(f"records={records} must be at least 1 and classes={classes} at least 2")
    batch = min(2 ** max(4, round(math.log2(records / 60))), records)
    steps, rate = max(1, round(_EPOCHS * records / batch)), _RATE * batch
    if parameters is not None:
        enough = _enough(records, epsilon, delta, parameters)
        if enough < steps:
            steps, rate = enough, _TRAVEL * records * min(epsilon, 3.0) / 3.0 / enough
            batch = min(records, max(16, round(records * math.sqrt(epsilon / (4 * steps)))))
    if changed.get("net") == LINEAR:
        rate *= _STEEPER
    chosen: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": delta,
        "batch": batch,
        "steps": steps,
        "learning_rate": rate,
        "net": "papernot2021" if image else "table",
        "average": 1 - 1 / max(2.0, steps / 20),
    }
    return Settings(**{**chosen, **changed})


def _enough(records: int, epsilon: float, delta: float, parameters: int) -> int:
    """The steps beyond which noise drowns what more of them learn, after Bassily et al. (2019)."""
    return max(_LEAST_STEPS, int((epsilon * records) ** 2 / (32 * parameters * math.log(2 / delta))))


_EPOCHS, _RATE = 40, 1 / 512  # and a clip of 0.1: as Tramer and Boneh (2021) train small nets with tanh
_TRAVEL = _EPOCHS * _RATE  # rate times steps for each record, which they take at epsilon 3
_LEAST_STEPS, _STEEPER = 100, 4  # and how much faster a linear head learns: both chosen on synthetic data
