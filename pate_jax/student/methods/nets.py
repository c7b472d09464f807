"""Methods that train a net step by step: from a lesson to the loop, and from the loop to learned nets.

PATE-G as published (`gan`) has a generator whose images the student tells from public ones (Salimans et al.
2016). The student has K logits; class K+1, "generated", has logit 0. Its loss is cross-entropy on the answers
and telling real from generated on public images; the generator matches the mean of the student's last hidden
layer. Both take their step at once, each with the other held fixed.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pate_jax import models
from pate_jax.data import Preprocessing
from pate_jax.data.dataset import IMAGE_RANKS
from pate_jax.errors import PateError
from pate_jax.models import Form, Model
from pate_jax.student import training
from pate_jax.student.calibration import negative_log_likelihood, temperature
from pate_jax.student.lesson import Learned, Lesson, PublicInputs
from pate_jax.student.methods import losses
from pate_jax.student.methods.losses import Views, beside, divided, views
from pate_jax.student.settings import AnyNet, Gan, names
from pate_jax.student.training import LOOKED_AT, Clear, Ending, Labels, Loop, Objective, Settling
from pate_jax.system import devices as machines

Config = TypeVar("Config", bound=AnyNet)
MakeObjective = Callable[[Model, Views, Config], Objective]
_LEAST_HELD_OUT = 20  # answers, for a temperature that means something
_JUDGED = 1000  # soft answers at most that set the temperature, where none were held out


class Exam(NamedTuple):
    """What ends a trial early: the labels that the net gives to these public inputs."""

    rows: np.ndarray
    is_clear: Callable[[np.ndarray], bool]
    """labels by row -> whether they tell what the trial is to tell"""


class Trainer(Protocol):
    """A method that trains a net, which may be only a trial."""

    def __call__(
        self, config: Any, keys: Array, lesson: Lesson, exam: Exam | None = None, /
    ) -> list[Learned]:
        """Learn, once for each key, and no further than an exam asks."""


def trainer(make: MakeObjective[Any]) -> Trainer:
    """The method that trains a net by this objective, all keys in one program."""

    def learn(config: Any, keys: Array, lesson: Lesson, exam: Exam | None = None, /) -> list[Learned]:
        return _learn(make, config, keys, lesson, exam)

    return learn


def _learn(
    make: MakeObjective[Config], config: Config, keys: Array, lesson: Lesson, exam: Exam | None
) -> list[Learned]:
    public, drawn, several = lesson.public, streams(keys), len(keys) > 1
    used, held = held_out(drawn[1][0], lesson, config.hold_out)
    form = form_of(config.net, several)
    model = build(public, config, form)
    of_all: dict[str, Any] = {"steps": 1, "hold_out": 0.0, "patience": 0, "settled": 0.0}  # however long
    taken = {name: value for name, value in of_all.items() if name in names(type(config))}
    shared = dataclasses.replace(config, **taken)
    program = _program(
        make, json.dumps(model.description), form, shared, public.preprocessing, implementation(keys), several
    )
    logits, judge, pool = _logits(model, public, held.rows), None, pool_of(used)
    if config.patience:
        judge = lambda weights: negative_log_likelihood(logits(weights), *held.taught)  # noqa: E731
    loop = loop_of(config)
    devices = config.devices or device_count(loop.batch_size, public.inputs.ndim in IMAGE_RANKS)
    ending = _ending(config, model, public, exam)
    title = f"student: {config.method}"
    trained = training.run(program, drawn, pool, loop, devices, judge, ending, title=title)
    trained = jax.tree.map(np.asarray, trained)
    judges, warmth = calibrating(used, held), [1.0] * len(keys)
    if len(judges.rows):
        found = _logits(model, public, judges.rows)(trained)
        learned = judges is not held and public.inputs.ndim in IMAGE_RANKS
        least = 1.0 if learned else 0.0  # answers that a net has learned make it no surer of images
        warmth = [max(least, temperature(each, *judges.taught)) for each in found]
    each_key = [jax.tree.map(lambda leaf, place=place: leaf[place], trained) for place in range(len(keys))]
    return [Learned(model.description, *one) for one in zip(each_key, warmth, strict=True)]


def loop_of(config: AnyNet) -> Loop:
    """What the loop reads of a method's settings, of which none is unset any more."""
    return Loop(
        steps=config.steps or 0,
        batch_size=config.batch_size or 1,
        learning_rate=config.learning_rate or 0.0,
        unlabelled=config.unlabelled or 1,
        label_smoothing=config.label_smoothing or 0.0,
        weight_decay=config.weight_decay,
        average=config.average,
        patience=config.patience,
        first_moment=config.first_moment,
    )


def held_out(stream: np.ndarray, lesson: Lesson, share: float) -> tuple[Lesson, Lesson]:
    """The answers to train on and those kept back, at random by the key data of a student's steps."""
    count = int(share * len(lesson.rows))
    if not count:
        return lesson, lesson.part(np.arange(0))
    order = np.random.default_rng(stream.ravel().tolist()).permutation(len(lesson.rows))
    return lesson.part(order[count:]), lesson.part(order[:count])


def calibrating(used: Lesson, held: Lesson) -> Lesson:
    """The answers that set the temperature: those held out, else some of soft ones; none of a few labels."""
    if len(held.rows) >= _LEAST_HELD_OUT:
        return held
    return used.part(np.arange(0)) if used.soft is None else used.spaced(_JUDGED)


def pool_of(lesson: Lesson) -> training.Pool:
    """A lesson on the device."""
    count, inputs = len(lesson.rows), lesson.public.inputs

    def spread(values):
        """With a place for each input, of which those after the answers are never read."""
        rest = np.zeros((max(0, len(inputs) - count), *values.shape[1:]), values.dtype)
        return jnp.asarray(np.concatenate([values, rest]))

    soft = lesson.soft and (spread(lesson.soft.targets), spread(lesson.soft.weights))
    rows, labels = spread(lesson.rows), spread(lesson.labels)
    return training.Pool(jnp.asarray(inputs), count, rows, labels, typical_distance(lesson.public), soft)


def build(public: PublicInputs, config: AnyNet, form: Form | None = None) -> Model:
    """The student's net."""
    sizes: dict[str, Any] = {} if config.maps is None else {"maps": config.maps}
    shape = public.inputs.shape[1:]
    return models.build(config.net or "mlp", input_shape=shape, classes=public.classes, form=form, **sizes)


def form_of(net: str | None, several: bool) -> Form:
    """How convolutions are computed: the fastest in a loop on this backend, of one net or of several."""
    if jax.default_backend() != "cpu":
        return Form("planes" if several or net == "cnn" else "lax")
    return Form("patches" if several else "products")


def typical_distance(public: PublicInputs) -> Array:
    """Of a preprocessed input from the mean of all: the root of their mean square."""
    inputs = public.inputs[:: max(1, len(public.inputs) // 2000)]
    scaled = public.preprocessing.apply(inputs).reshape(len(inputs), -1)
    return jnp.float32(np.sqrt(((scaled - scaled.mean(0)) ** 2).sum(1).mean()))


def device_count(batch_size: int, image: bool) -> int:
    """All devices of this process that the batch divides by; one for tables, whose steps are too short."""
    most = len(machines.local()) if image else 1
    return max(count for count in range(1, most + 1) if batch_size % count == 0)


def streams(keys: Array) -> tuple[np.ndarray, np.ndarray]:
    """Key data of each student for its first weights and for its steps."""
    pairs = jax.vmap(lambda key: jax.random.key_data(jax.random.split(key)))(keys)
    return np.asarray(pairs[:, 0]), np.asarray(pairs[:, 1])


def seeds(keys: Array) -> list[int]:
    """A number of each student, from the key data of its first weights."""
    return [int(stream.ravel()[0]) for stream in streams(keys)[0]]


def implementation(keys: Array) -> str:
    """The name of the generator of these keys."""
    return str(jax.random.key_impl(keys))


def _logits(model: Model, public: PublicInputs, rows: np.ndarray) -> Callable[[Any], np.ndarray]:
    """`weights of all students -> logits [student, row, class]` of the public inputs at these rows."""
    seen = public.preprocessing.apply(public.inputs[rows])
    return lambda weights: np.asarray(_applied(model.apply, weights, seen))


def _ending(config: AnyNet, model: Model, public: PublicInputs, exam: Exam | None) -> Ending:
    """When training ends: with its exam, once labels have settled, or with its last step."""
    steps, count = config.steps or 0, len(public.inputs)
    if exam is not None:
        return Clear(steps, _labels(model, public, exam.rows), exam.is_clear)
    if not config.settled:
        return Ending(steps)
    looked_at = min(LOOKED_AT, count)
    return Settling(steps, _labels(model, public, np.arange(looked_at) * count // looked_at), config.settled)


def _labels(model: Model, public: PublicInputs, rows: np.ndarray) -> Labels:
    """`weights of all students -> labels [student, row]` of the public inputs at these rows."""
    logits = _logits(model, public, rows)
    return lambda weights: logits(weights).argmax(-1)


@partial(jax.jit, static_argnums=0)
def _applied(apply: Callable[[Any, Any], Array], weights: Any, seen: Any) -> Array:
    return jax.lax.map(lambda each: apply(each, seen), weights)


@lru_cache(maxsize=8)
def _program(
    make: MakeObjective[Any],
    net: str,
    form: Form,
    config: AnyNet,
    preprocessing: Preprocessing,
    implementation: str,
    several: bool,
) -> training.Program:
    """Compile once for all students that differ in keys, steps, inputs and answers only."""
    model = models.build(**json.loads(net), form=form)
    seen = views(
        preprocessing,
        image=len(model.description["input_shape"]) == 3,
        shift=config.shift or 0,
        flip=config.flip,
        strength=config.strength,
    )
    objective = make(model, seen, config)
    return training.program(objective, loop_of(config), model.description["classes"], implementation, several)


_HIDDEN = (256, 512)  # of the generator


def objective(model: Model, views: Views, config: Gan) -> Objective:
    """The losses: `CE(answers) + weight * real_or_generated` and, for the generator, `feature_matching`."""
    shape = tuple(model.description["input_shape"])
    pixels = int(jnp.prod(jnp.array(shape)))
    generator = models.build("mlp", input_shape=(config.latent,), classes=pixels, hidden=_HIDDEN)
    hidden = features(model)
    each_alone = _of_each_alone(hidden)

    def start(key):
        net_key, generator_key = jax.random.split(key)
        return {"net": model.init(net_key), "generator": generator.init(generator_key)}, ()

    def images(parameters, key, count):
        drawn = generator.apply(parameters, jax.random.normal(key, (count, config.latent)))
        return views.plain(255 * jax.nn.sigmoid(drawn.reshape(count, *shape)))

    def look(batch):
        known, real = views.weak(batch.keys, batch.inputs), views.weak(batch.other_keys, batch.others)
        return known, real, batch.other_slots

    def loss(parameters, memory, batch, key):
        net = parameters["net"]
        known, real, slots = batch.seen
        features = hidden(net, beside(known, real))
        logits, on_real = divided(logits_of(net, features), len(known), len(real))
        _, seen = divided(features, len(known), len(real))
        # Each device generates all images and looks at those of its slots: the gradient of some images is
        # smaller than the generator's, which devices would have to add up.
        made = images(parameters["generator"], key, len(real))[slots]
        told, drawn = each_alone(net, made)
        telling = losses.real_or_generated(on_real, logits_of(net, told))
        matching = losses.feature_matching(jax.lax.stop_gradient(seen), drawn)
        right = jnp.mean(logits.argmax(-1) == batch.targets.argmax(-1))
        answers = losses.on_answers(logits, batch.targets, batch.weights)
        return answers + (config.weight or 0.0) * telling + matching, (memory, right)

    return Objective(start, look, loss, "right")


def _of_each_alone(function: Callable) -> Callable:
    """`f(a, b)` twice, computed once: differentiation holds `b` fixed in the first, and `a` in the second."""

    @jax.custom_vjp
    def twice(first, second):
        found = function(first, second)
        return found, found

    def forward(first, second):
        found, pull = jax.vjp(function, first, second)
        return (found, found), pull

    def backward(pull, slopes):
        return pull(slopes[0])[0], pull(slopes[1])[1]

    twice.defvjp(forward, backward)
    return twice


def logits_of(parameters: Any, hidden: Any) -> Any:
    """The logits that the last layer makes of the last hidden layer."""
    last = _last(parameters)
    return hidden @ last["kernel"] + last["bias"]


def features(model: Model) -> Callable[[Any, Any], Any]:
    """`(parameters, inputs) -> last hidden layer` of a net that ends in hidden dense layers.

    It is the same net, in the same form, with a last layer that changes nothing.

    >>> import jax, jax.numpy as jnp
    >>> net = models.build("cnn", input_shape=(8, 8, 1), classes=3)
    >>> parameters, inputs = net.init(jax.random.key(0)), jnp.ones((2, 8, 8, 1))
    >>> hidden = features(net)(parameters, inputs)
    >>> bool(jnp.allclose(logits_of(parameters, hidden), net.apply(parameters, inputs), atol=1e-6))
    True
    """
    about = model.description
    _, defaults = models.NETS.get(about["name"], (None, {}))
    if not about.get("hidden", defaults.get("hidden", ())):
        raise PateError(f"net={about['name']!r} has no hidden dense layer, which gan needs: take cnn or mlp")

    def run(parameters, inputs):
        return model.apply(_without_last(parameters), inputs)

    return run


def _last(parameters: Any) -> Any:
    layers = parameters.get("head", parameters)
    return layers[_name_of_last(layers)]


def _without_last(parameters: Any) -> Any:
    layers = parameters.get("head", parameters)
    name = _name_of_last(layers)
    width = layers[name]["kernel"].shape[0]
    passed = {**layers, name: {"kernel": jnp.eye(width), "bias": jnp.zeros(width)}}
    return {**parameters, "head": passed} if "head" in parameters else passed


def _name_of_last(layers: Any) -> str:
    return max(layers, key=lambda name: int(name.removeprefix("dense")))
