"""What a student may be told: one frozen dataclass for each method; all of it is free of privacy cost.

Nothing here needs JAX. A value of None follows the method's recipe, which may differ for images and tables.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

from pate_jax.errors import PateError, above, at_least, one_of, within

NETS = ("mlp", "table", "cnn", "pate2017", "tutorial", "resnet")
_OF_PUBLIC_IMAGES = {"patches": "ridge", "tandem": "tandem"}  # nets that are a method's own


def _check(given: Mapping[str, Any], own: bool) -> None:
    """Refuse values that make no sense."""
    for name in ("steps", "batch_size", "learning_rate", "unlabelled", "radius", "latent", "devices"):
        above(0, **{f"student {name}": given.get(name)})
    for name in ("label_smoothing", "average", "hold_out", "settled"):
        if not 0 <= (given.get(name) or 0) < 1:
            raise PateError(f"student {name}={given.get(name)} must be at least 0 and below 1")
    for name in ("confidence", "alignment"):
        within(0, 1, **{f"student {name}": given.get(name)})
    for name in ("shift", "weight_decay", "weight", "strength", "entropy", "patience"):
        at_least(0, **{f"student {name}": given.get(name)})
    if given.get("patience") and not given.get("hold_out"):
        raise PateError(f"student patience={given['patience']} needs answers to judge by: set hold_out=0.1")
    _check_net(given.get("net"), own)


def _check_net(net: Any, own: bool) -> None:
    if net in _OF_PUBLIC_IMAGES:
        raise PateError(
            f"student net={net!r} is made of public images, not trained step by step: choose "
            f"method={_OF_PUBLIC_IMAGES[net]!r}, or leave the net out"
        )
    if net is not None and not (":" in net if own else net in NETS):
        raise PateError(
            f"student net={net!r} must be one of {', '.join(NETS)}, or with method='own' your own as "
            "package.module:Class"
        )


Recipe = Mapping[str, Any]
# Of fixmatch, where answers cover all: so few steps that they would hardly ever end early.
_OF_WHOLE: Recipe = {"steps": 3000, "batch_size": 8, "unlabelled": 3, "settled": 0.0}
Selection = Literal["first", "random", "kmeans", "learned", "space"]  # which public inputs are asked about


@dataclass(frozen=True)
class Settings:
    """What the settings of all methods share: checks, and recipes for what is left open."""

    method: str = field(default="", init=False)
    images: ClassVar[Recipe] = {}
    tables: ClassVar[Recipe | None] = None  # None: a method for images only

    def __post_init__(self) -> None:
        _check({name: getattr(self, name) for name in names(type(self))}, self.method == Own.method)

    def resolved(self, *, image: bool, whole: bool = False) -> Settings:
        """The same with every unset value of the recipe filled in.

        `whole` says that soft answers leave little to guess (`covers`); only `auto` asks.

        >>> Supervised().resolved(image=True).steps
        1200
        """
        recipe = self.images if image else self.tables
        if recipe is None:
            raise PateError(
                f"student method={self.method!r} needs images; choose vat or supervised for tables"
            )
        missing = {name: value for name, value in recipe.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **missing)


_ANY: Recipe = {"label_smoothing": 0.1, "shift": 3, "batch_size": 64}
_CNN: Recipe = {**_ANY, "net": "cnn"}


@dataclass(frozen=True)
class NetTraining(Settings):
    """What every method takes that trains a net step by step."""

    maps: tuple[int, ...] | None = None
    """Feature maps of each convolution of `cnn`, `pate2017` and `tandem`; unset: the net's own."""
    steps: int | None = None
    """Steps of the optimiser."""
    batch_size: int | None = None
    """Answered queries a step; unset: 64, 16 for fixmatch, to which more steps are worth more, and 8
    where soft answers cover the pool."""
    learning_rate: float | None = None
    """Peak rate of AdamW, reached after a tenth of the steps, then down a cosine to zero."""
    weight_decay: float = 1e-3
    """Decoupled weight decay."""
    label_smoothing: float | None = None
    """Share of each label spread over all classes, since a few answers are wrong; unset: 0.1, and 0 for
    fixmatch, which would hardly ever be sure of a guess."""
    shift: int | None = None
    """Images are moved by up to this many pixels in each direction at every step; unset: 3, and 2 for
    fixmatch."""
    flip: bool = False
    """Also exchange left and right, in half of the cases: for photographs and clothes, not for characters."""
    average: float = 0.998
    """How much of the running average of the weights a step keeps; the average is what is published."""
    devices: int | None = None
    """Devices to spread each batch over; unset: all for images that divide the batch, one for tables."""


@dataclass(frozen=True)
class AnyNet(NetTraining):
    """What a method takes that trains a net of the user's choice, and may hold answers out."""

    net: str | None = None
    """Its net: mlp, table, cnn, pate2017, tutorial or resnet, unset: `cnn` for images, `table` for tables;
    of `own` your module of Flax as package.module:Class."""
    hold_out: float = 0.0
    """Share of the answers kept from training, to set the temperature and for early stopping."""
    patience: int = 0
    """Stop after this many hundreds of steps without a smaller loss on the answers held out; 0: never."""
    first_moment: ClassVar[float] = 0.9  # of AdamW

    @property
    def unlabelled(self) -> int | None:
        """Public inputs a step that need no answer, as a multiple of batch_size."""
        return 1

    @property
    def strength(self) -> float:
        """How strong distortions are, where a method distorts."""
        return 1.0

    @property
    def settled(self) -> float | None:
        """Share of labels below which training has settled; 0: never."""
        return 0.0


@dataclass(frozen=True)
class FromPool(AnyNet):
    """What a method takes that also learns from public inputs without an answer."""

    unlabelled: int | None = None
    """Public inputs a step that need no answer, as a multiple of batch_size."""
    weight: float | None = None
    """Weight of the part of the loss that needs no answers."""


@dataclass(frozen=True)
class Aligned(Settings):
    """What a method takes that may know how frequent the classes are."""

    alignment: float = 0.0
    """fixmatch, tandem: how far guesses are pulled towards equally frequent classes, 0 to 1: for public pools
    that are known to be balanced."""


@dataclass(frozen=True)
class Supervised(AnyNet):
    """Cross-entropy on the answered queries only."""

    method: str = field(default="supervised", init=False)
    images: ClassVar[Recipe] = {**_CNN, "steps": 1200, "learning_rate": 5e-3}
    tables: ClassVar[Recipe | None] = {**images, "net": "table"}


@dataclass(frozen=True)
class Vat(FromPool):
    """Answers stay the same under the worst small change of any public input."""

    radius: float = 0.2
    """vat: length of the worst change, as a share of an input's typical distance from the pool's mean."""
    entropy: float = 0.3
    """vat: weight of the entropy of the guesses on public inputs, beside the adversarial part."""
    method: str = field(default="vat", init=False)
    images: ClassVar[Recipe] = {**_CNN, "steps": 2000, "learning_rate": 3e-3, "unlabelled": 2, "weight": 1.0}
    tables: ClassVar[Recipe | None] = {**images, "net": "table", "steps": 1500, "unlabelled": 4}


@dataclass(frozen=True)
class Gan(FromPool):
    """PATE-G: a generator whose images the student learns to tell from public ones."""

    latent: int = 64
    """gan: numbers that the generator starts from."""
    method: str = field(default="gan", init=False)
    first_moment: ClassVar[float] = 0.5  # generators overshoot with more memory
    images: ClassVar[Recipe] = {**_CNN, "steps": 2000, "learning_rate": 1e-3, "unlabelled": 1, "weight": 1.0}


@dataclass(frozen=True)
class FixMatch(FromPool, Aligned):
    """Confident guesses on public images are taught under strong distortion."""

    confidence: float = 0.95
    """fixmatch: a guess counts if its probability is at least this."""
    strength: float = 1.0
    """fixmatch: how strong the distortions are; 1 turns by up to 30 degrees."""
    distort_answers: bool = True
    """fixmatch: whether answered images are distorted too, as strongly; the paper only moves them."""
    settled: float | None = None
    """fixmatch: training ends early once a smaller share of public inputs gets another label within 400
    steps; unset: 0.005, and 0, which is never, where soft answers cover the pool."""
    method: str = field(default="fixmatch", init=False)
    images: ClassVar[Recipe] = {
        "net": "cnn",
        "steps": 6000,
        "batch_size": 16,
        "learning_rate": 5e-3,
        "label_smoothing": 0.0,
        "shift": 2,
        "unlabelled": 4,
        "weight": 1.0,
        "settled": 0.005,
    }

    def resolved(self, *, image: bool, whole: bool = False) -> Settings:
        """A fifth of the work where soft answers cover the pool, and little has to be guessed.

        >>> few, most = (FixMatch().resolved(image=True, whole=whole) for whole in (False, True))
        >>> (few.steps, few.batch_size, few.unlabelled), (most.steps, most.batch_size, most.unlabelled)
        ((6000, 16, 4), (3000, 8, 3))
        """
        recipe = _OF_WHOLE if whole else {}
        missing = {name: value for name, value in recipe.items() if getattr(self, name) is None}
        return super(FixMatch, dataclasses.replace(self, **missing)).resolved(image=image)


@dataclass(frozen=True)
class Ridge(Settings):
    """Least squares: on likeness to public inputs, which the student holds, or on a table's columns."""

    method: str = field(default="ridge", init=False)
    tables: ClassVar[Recipe | None] = {}


@dataclass(frozen=True)
class Linear(Settings):
    """The classifier that class sums give, as it is: for runs of sums in one round (`--voters sums`)."""

    method: str = field(default="linear", init=False)

    def resolved(self, *, image: bool, whole: bool = False) -> Settings:
        """Refused: other answers give no such classifier."""
        raise PateError(
            "student method='linear' is the classifier that the class sums of one round give: choose it with "
            "--voters sums, or another method here"
        )


@dataclass(frozen=True)
class Tandem(NetTraining, Aligned):
    """Ridge, and a net that learns what ridge says of every public input, together."""

    method: str = field(default="tandem", init=False)
    images: ClassVar[Recipe] = {**_ANY, "steps": 8000, "learning_rate": 5e-3}


@dataclass(frozen=True)
class Own(Settings):
    """A net of your own, by cross-entropy on the answered queries; it is released as StableHLO.

    >>> Own(net="my_package.nets:Small", net_args="hidden=64").resolved(image=False).steps
    2000
    """

    net: str | None = None
    """Its net, as package.module:Class."""
    net_args: str | None = None
    """own: arguments of your net, as `--net-args` gives those of teachers' nets."""
    steps: int | None = None
    """Steps of AdamW."""
    batch_size: int | None = None
    """Answered queries a step."""
    learning_rate: float | None = None
    """Peak rate of AdamW."""
    weight_decay: float = 1e-3
    """Decoupled weight decay."""
    hold_out: float = 0.0
    """Share of the answers kept from training, to set the temperature."""
    method: str = field(default="own", init=False)
    images: ClassVar[Recipe] = {"steps": 2000, "batch_size": 64, "learning_rate": 1e-3}
    tables: ClassVar[Recipe | None] = images

    def resolved(self, *, image: bool, whole: bool = False) -> Settings:
        """The same with every unset value filled in; refused where no net is named."""
        if self.net is None:
            raise PateError("student method='own' needs --student.net, your net as package.module:Class")
        return super().resolved(image=image)


@dataclass(frozen=True)
class Auto(FixMatch, Vat, Gan):
    """Linear for sums, or for images what held-out voters prefer; else what agrees best with noisy answers.

    That is what runs do, with answers that a method has not seen (`student.choose`). Where nothing is
    compared, in `student.fit` and for answers whose noise is shared, it is ridge where soft answers cover
    the pool, else fixmatch or, for tables, vat.

    What the chosen method has no use for is not read. Fixmatch and vat guess what inputs without an answer
    are. Where soft answers cover the pool (see `covers`) there is little to guess, and ridge stays close to
    them, in seconds. A net may be right more often than its answers, or less, and nothing says which.
    """

    method: str = field(default="auto", init=False)

    def resolved(self, *, image: bool, whole: bool = False) -> Settings:
        """The settings of the method that suits the kind of data and of answers.

        >>> Auto(steps=7).resolved(image=False).method, Auto().resolved(image=True, whole=True).method
        ('vat', 'ridge')
        """
        guessing = "fixmatch" if image else "vat"
        return with_method(self, "ridge" if whole else guessing).resolved(image=image)


StudentConfig = Auto | Supervised | Own | Vat | Gan | FixMatch | Ridge | Linear | Tandem
KINDS: dict[str, type[StudentConfig]] = {kind.method: kind for kind in get_args(StudentConfig)}


def names(kind: type[Settings]) -> frozenset[str]:
    """The settings that a method takes.

    >>> sorted(names(Ridge))
    []
    """
    return frozenset(each.name for each in dataclasses.fields(kind) if each.init)


def named(method: str, **settings: Any) -> StudentConfig:
    """The settings of the method of this name; one that it does not take is refused.

    >>> named("vat", steps=3).method
    'vat'
    """
    one_of(KINDS, **{"student method": method})
    kind = KINDS[method]
    for name, value in settings.items():
        if name not in names(kind):
            raise PateError(_foreign(kind, name, value))
    return kind(**settings)


def with_method(config: Settings, method: str) -> StudentConfig:
    """The settings of another method, as far as it takes what was set for this one.

    >>> with_method(Vat(steps=3, radius=0.1), "gan").steps
    3
    """
    shared = names(type(config)) & names(KINDS.get(method, Auto))
    return named(method, **{name: getattr(config, name) for name in shared})


def from_dict(recorded: Mapping[str, Any]) -> StudentConfig:
    """The settings that `dataclasses.asdict` wrote.

    >>> from_dict({"method": "ridge"})
    Ridge(method='ridge')
    """
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in recorded.items()}
    method = given.pop("method", None)
    unknown = sorted(given.keys() - frozenset().union(*map(names, KINDS.values())))
    if method not in KINDS or unknown:
        raise PateError(
            f"these are no settings of a student (method={method!r}, unknown: "
            f"{', '.join(unknown) or 'none'}); restore the file"
        )
    return named(method, **{name: given[name] for name in names(KINDS[method]) & given.keys()})


def _foreign(kind: type[Settings], name: str, value: Any) -> str:
    """What to say of a setting that a method does not take."""
    takers = [method for method, each in KINDS.items() if name in names(each) and each is not Auto]
    if not takers:
        return f"student {name}={value!r} is no setting of any method; drop it"
    own = ""
    if not issubclass(kind, AnyNet):
        held = "" if kind is Linear else " and holds each answer out in turn"
        own = f": {kind.method} has a net of its own{held}"
    return (
        f"student {name}={value!r} is no setting of {kind.method}{own}; leave it out, or choose the method "
        f"{' or '.join(takers)}"
    )
