"""How students learn, all methods behind one interface.

A new method is a file here, or one of the `losses` of nets; its settings are in `student.settings`, and
its line in `NETS` or `METHODS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import jax
import numpy as np

from pate_jax.aggregate import Answers
from pate_jax.data.dataset import IMAGE_RANKS
from pate_jax.student import smoothing
from pate_jax.student.lesson import Learned, Lesson, PublicInputs, check_shown, covers, lesson
from pate_jax.student.methods import losses, nets, own, ridge, tandem
from pate_jax.student.serving import Student
from pate_jax.student.settings import Auto, Own, StudentConfig


class Method(Protocol):
    """One way to learn: its settings, with nothing unset, one key a student, and a lesson to learned nets."""

    def __call__(self, config: Any, keys: jax.Array, lesson: Lesson, /) -> list[Learned]:
        """Learn, once for each key."""


def _net(make: nets.MakeObjective[Any]) -> nets.Trainer:
    """The trainer of a net; of whole histograms it learns targets that least squares has informed.

    Of images it learns the surest ones, and guesses the others' labels as those of the whole pool.
    """
    train = nets.trainer(make)

    def learn(
        config: Any, keys: jax.Array, lesson: Lesson, exam: nets.Exam | None = None, /
    ) -> list[Learned]:
        soft = lesson.soft
        if soft is not None and soft.plain is not None:
            seed = int(np.asarray(jax.random.key_data(keys)).ravel()[0])  # which consumes no key
            expected = ridge.left_out(seed, lesson)
            image = lesson.public.inputs.ndim in IMAGE_RANKS
            lesson = lesson._replace(soft=smoothing.informed(soft, expected, image=image))
            if image:
                lesson = lesson.part(smoothing.surest(soft.plain, lesson.labels))
        return train(config, keys, lesson, exam)

    return learn


NETS: Mapping[str, nets.Trainer] = {
    "supervised": _net(losses.supervised),
    "vat": _net(losses.vat),
    "gan": _net(nets.objective),
    "fixmatch": _net(losses.fixmatch),
}
METHODS: Mapping[str, Method] = {**NETS, "own": own.learn, "ridge": ridge.learn, "tandem": tandem.learn}


def check(config: StudentConfig, public_inputs: PublicInputs) -> None:
    """Refuse a student that does not suit these inputs, or would hold those that may not be shown."""
    image = public_inputs.inputs.ndim in IMAGE_RANKS
    settings = config.resolved(image=image)
    check_shown(config, image=image, shown=public_inputs.shown)
    if isinstance(settings, Own):
        own.check(settings, public_inputs)


def fit(
    key: jax.Array, public_inputs: PublicInputs, answers: Answers, config: StudentConfig | None = None
) -> Student:
    """Train a student; row i of the answers belongs to row i of the inputs.

    The inputs may have more rows than there are answers: those, and the refused ones, are public inputs
    without an answer, from which every method but `supervised` learns too.

    >>> from pate_jax.data.dataset import AS_STORED
    >>> from pate_jax.student import Ridge
    >>> inputs = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    >>> answers = Answers((inputs[:, 0] > 0).astype(int), np.ones(60, bool))
    >>> student = fit(jax.random.key(0), PublicInputs(inputs, AS_STORED, 2, ("no", "yes")), answers, Ridge())
    >>> student.predict(np.array([[-3.0, 0.0], [3.0, 0.0]])).tolist()
    ['no', 'yes']
    """
    return fit_many(key[None], public_inputs, answers, config)[0]


def fit_many(
    keys: jax.Array, public_inputs: PublicInputs, answers: Answers, config: StudentConfig | None = None
) -> list[Student]:
    """Train one student for each key on the same inputs and answers, in one program where there is a loop."""
    given = lesson(public_inputs, answers)
    image = public_inputs.inputs.ndim in IMAGE_RANKS
    whole = given.soft is not None and covers(len(given.rows), len(public_inputs.inputs), image=image)
    whole &= public_inputs.shown or not image  # where ridge would hold them
    settings = (config or Auto()).resolved(image=image, whole=whole)
    learned = METHODS[settings.method](settings, keys, given)
    return [each.student(public_inputs) for each in learned]
