"""The names of nets, activations, augmentations and spaces, for settings and flags that must not load JAX."""

from __future__ import annotations

from typing import Literal

Net = Literal[
    "mlp",
    "table",
    "cnn",
    "pate2017",
    "papernot2021",
    "tutorial",
    "resnet",
    "patches",
    "tandem",
    "linear",
]
Solved = Literal["sums", "head", "rows"]  # students in closed form, which no teacher is
Space = Literal["patches", "columns", "identity", "encoder", "contrast"]
Activation = Literal["relu", "tanh", "tempered_sigmoid"]
Augmentation = Literal["none", "shift", "flip", "crop", "shift_flip", "crop_flip"]
