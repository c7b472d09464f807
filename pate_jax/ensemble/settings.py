"""What a teacher may be told: its net and how it is trained, with a recipe for what is left open."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, get_args

from pate_jax.errors import PateError, above, at_least, one_of
from pate_jax.models.names import Activation, Augmentation, Space

Loss = Literal["cross_entropy", "squared"]
Optimizer = Literal["sgd", "adam"]


@dataclasses.dataclass(frozen=True)
class TeacherConfig:
    """How teachers are trained. A value of None means the recipe of the net (`RECIPES`).

    >>> TeacherConfig(net="cnn").resolved().epochs
    30
    """

    net: str | None = None
    """mlp, cnn, pate2017, resnet, table, patches (linear, on typical patches of the public pool), linear (in
    closed form, on a space of the public pool), or your own module of Flax as package.module:Class; unset:
    the caller's choice, cnn for images in `pate`"""
    net_args: str | None = None
    """of your own net: its arguments as in Python, such as "hidden=64, rate=0.1"; classes, num_classes,
    input_shape and in_features are given to it by themselves"""
    front: str | None = None
    """of linear: the space that its teachers look through (patches, columns, identity, encoder, contrast), or
    your own encoder as module:function; encoder takes the array features beside your inputs; unset: those
    features where you give them, or by the kind of the inputs"""
    activation: Activation = "relu"
    """relu, tanh or tempered_sigmoid"""
    epochs: int | None = None
    """passes over a teacher's own records"""
    min_steps: int = 200
    """a teacher whose epochs make fewer steps than this gets more epochs"""
    stop_below: float | None = None
    """a teacher stops after an epoch whose mean loss on its own records is below this; unset: never early"""
    batch_size: int | None = None
    """records a step"""
    loss: Loss | None = None
    """cross_entropy, or squared: the distance of the outputs from 1 at the label and 0 elsewhere"""
    optimizer: Optimizer | None = None
    """sgd (Nesterov momentum) or adam"""
    learning_rate: float | None = None
    """the peak, after warm-up; a cosine brings it down to zero"""
    momentum: float = 0.9
    """Nesterov momentum of sgd"""
    weight_decay: float | None = None
    """L2 penalty on the parameters; of linear that of ridge regression, inputs being about 1 long"""
    warmup: float = 0.1
    """fraction of a teacher's own steps over which the learning rate rises"""
    augment: Augmentation | None = None
    """none, shift, flip, crop, shift_flip or crop_flip"""
    attempts: int = 3
    """how often a teacher may start in all, should it diverge or stay at chance level"""
    width: int | None = None
    """teachers per vmap, if a device has that many; by default from a committed table for this backend and
    net, halved until it fits the machine's memory"""
    public_records: int | None = None
    """number of private records that memory is planned for, taken as public; by default theirs, rounded up to
    two digits"""
    devices: int | None = None
    """how many local devices to use; by default all"""
    checkpoint_seconds: float = 15.0
    """least time between two checkpoints inside a wave"""

    def __post_init__(self) -> None:
        _check(self)

    @property
    def own_net(self) -> bool:
        """Whether the net is a user's own, as package.module:Class.

        >>> TeacherConfig(net="my_package.nets:Small").own_net, TeacherConfig(net="cnn").own_net
        (True, False)
        """
        return ":" in (self.net or "")

    @property
    def closed_form(self) -> bool:
        """Whether one formula gives a teacher's parameters, so that none of the steps' settings matters."""
        return self.net == "linear"

    def of_net(self, name: str | None) -> TeacherConfig:
        """The same for the net of this name, which it takes where it names none.

        >>> TeacherConfig().of_net("linear").closed_form
        True
        """
        named = dataclasses.replace(self, net=self.net or name)
        if named.closed_form != (name == "linear"):
            raise PateError(
                f"net={named.net!r} and the model is {name!r}: linear teachers need a model that "
                "models.on_space makes, and such a model needs linear teachers"
            )
        return named

    def resolved(self) -> TeacherConfig:
        """The same with every None of the recipe filled in."""
        recipe = RECIPES.get(self.net or "", RECIPES["mlp"])
        missing = {name: value for name, value in recipe.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **missing)


_OF_STEPS = ("epochs", "stop_below", "batch_size", "loss", "optimizer", "learning_rate", "augment")
_IMAGES = {
    "epochs": 30,
    "batch_size": 24,
    "loss": "cross_entropy",
    "optimizer": "sgd",
    "learning_rate": 0.05,
    "weight_decay": 5e-4,
    "augment": "shift",
}
RECIPES: dict[str, dict[str, Any]] = {
    "mlp": {**_IMAGES, "augment": "none"},
    "cnn": _IMAGES,
    "pate2017": {**_IMAGES, "learning_rate": 0.02},
    "resnet": _IMAGES,
    "patches": {
        **_IMAGES,
        "epochs": 100,
        "loss": "squared",
        "learning_rate": 1.0,
        "weight_decay": 0.0,
        "augment": "none",
    },
    "linear": {"weight_decay": 0.1},
    "table": {
        **_IMAGES,
        "epochs": 60,
        "optimizer": "adam",
        "learning_rate": 0.001,
        "weight_decay": 3.0,  # for shards of a hundred records or so; many more want less
        "augment": "none",
    },
}


def _check(config: TeacherConfig) -> None:
    """Refuse values that make no sense; names of nets and activations are checked where a net is made."""
    unused = [name for name in _OF_STEPS if config.closed_form and getattr(config, name) is not None]
    if unused:
        raise PateError(
            f"{unused[0]}={getattr(config, unused[0])!r} is for nets that learn step by step, and linear "
            "teachers follow from a formula: leave it out"
        )
    _check_front(config)
    if config.net_args is not None and config.net is not None and not config.own_net:
        raise PateError(
            f"net_args={config.net_args!r} is for a net of your own, and the net is {config.net!r}: give it "
            "as package.module:Class, or leave them out"
        )
    for name, known in (("loss", Loss), ("optimizer", Optimizer), ("augment", Augmentation)):
        if (value := getattr(config, name)) is not None:
            one_of(get_args(known), **{name: value})
    for name in ("epochs", "batch_size", "attempts", "min_steps", "width", "devices", "public_records"):
        at_least(1, "; leave it out for the default", **{name: getattr(config, name)})
    above(0, learning_rate=config.learning_rate, stop_below=config.stop_below)
    if not (0 <= config.warmup < 1 and 0 <= config.momentum < 1 and (config.weight_decay or 0) >= 0):
        values = f"warmup={config.warmup}, momentum={config.momentum}, weight_decay={config.weight_decay}"
        raise PateError(f"{values}: the first two must be in [0, 1), the third >= 0")


def _check_front(config: TeacherConfig) -> None:
    """Refuse a front that is no space, and one of nets that look at inputs as they are."""
    if config.front is None:
        return
    if not config.closed_form:
        raise PateError(
            f"front={config.front!r} is a space of linear teachers, and the net is {config.net!r}: choose "
            "the net linear, or leave it out"
        )
    if config.front not in get_args(Space) and ":" not in config.front:
        raise PateError(
            f"front={config.front!r} must be one of {', '.join(get_args(Space))}, or your own encoder as "
            "module:function"
        )
