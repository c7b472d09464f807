"""Names of nets, activations, augmentations, spaces and metrics, for settings and flags without JAX."""

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
Metric = Literal["accuracy", "balanced", "auroc", "auprc"]
Augmentation = Literal["none", "shift", "flip", "crop", "shift_flip", "crop_flip"]
