"""Which method suits a run's answers, by cross-validation on the noisy answers themselves: free of cost.

The noise of one answer is independent of that of another (teachers' answers, neighbours' counts), so what a
student says of inputs whose answers it has not seen can be compared with these. A label agrees with the
student's or not; a table of shares has, for the label that the student gives, a share without bias, which
counts by how little noise is in it. Two methods are compared on the same answers, and the later one, which
costs more, is taken if it is better by more than one standard error of the difference.

Images whose answers are labels or whole histograms of teachers go to the net, and nothing is compared:
answers lie where public inputs are dense, which flatters ridge, and the net would be judged by fewer answers
and steps than it will have. On drawn images it was ahead on new ones by four to fourteen points wherever the
two were as good as equal here.

Ridge predicts every answer as if it had been left out, in closed form. A net is trained for each third of the
answers on the two others, with a quarter of its steps at most, and no further once it is clearly worse, or
clearly better and the last to be compared. So all comparisons together cost about one training at most, and
lean a little towards ridge.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import NamedTuple, TypedDict

import jax
import numpy as np
from jaxtyping import Float, Int

from pate_jax.aggregate import Answers
from pate_jax.data.dataset import IMAGE_RANKS
from pate_jax.errors import PateError
from pate_jax.student.lesson import Lesson, PublicInputs, covers, lesson
from pate_jax.student.methods import NETS, nets, ridge
from pate_jax.student.settings import AnyNet, Auto, StudentConfig, with_method
from pate_jax.system import progress

IMAGES, TABLES = ("ridge", "fixmatch"), ("ridge", "supervised", "vat")  # tried in this order
LEAST = 20  # answers that are compared
_PARTS = 3  # of the answers, each held out once
_STEPS = 4  # a net is tried with one of so many of its steps
_CLEARLY = 2.0  # standard errors by which a net has to be worse, or better, to be judged no further


class Judged(TypedDict):
    """How good a method is, as a run's results say it."""

    method: str
    score: float  # mean agreement with answers that were held out, or mean share of the label that was given
    error: float  # its standard error
    answers: int  # that were held out


class Choice(NamedTuple):
    """A method's settings, and what they were compared with; nothing where there was no choice."""

    config: StudentConfig
    comparison: list[Judged]


class Trial(NamedTuple):
    """What held-out answers say of the labels that a method gave their inputs."""

    method: str
    places: Int[np.ndarray, " judged"]  # of the answers, in rising order
    scores: Float[np.ndarray, " judged"]


def choose(
    key: jax.Array,
    public_inputs: PublicInputs,
    answers: Answers,
    config: StudentConfig | None = None,
    *,
    independent: bool = True,
) -> Choice:
    """The settings by which to train a student: those given, or for `auto` those of the best method.

    `independent` says that each answer has noise of its own; answers that follow from one noisy table of sums
    are not compared. Nor are methods for images of teachers' answers, or that no student may hold.

    >>> pool = np.random.default_rng(0).normal(size=(90, 2)).astype(np.float32)
    >>> from pate_jax.data.dataset import AS_STORED
    >>> public = PublicInputs(pool, AS_STORED, 2, ("no", "yes"))
    >>> answers = Answers((pool[:9, 0] > 0).astype(int), np.ones(9, bool))
    >>> choose(jax.random.key(0), public, answers).config.method
    'ridge'
    """
    config = config or Auto()
    if not isinstance(config, Auto):
        return Choice(config, [])
    given, image = lesson(public_inputs, answers), public_inputs.inputs.ndim in IMAGE_RANKS
    if not independent:
        whole = given.soft is not None and covers(len(given.rows), len(public_inputs.inputs), image=image)
        return Choice(with_method(config, config.resolved(image=image, whole=whole).method), [])
    by_teachers = given.soft is None or given.soft.plain is not None  # labels, or whole histograms
    if image and (by_teachers or not public_inputs.shown):  # ridge holds images as they are
        return Choice(with_method(config, "fixmatch"), [])
    order = IMAGES if image else TABLES
    if len(given.rows) < LEAST or len(np.unique(given.labels)) < 2:
        return _of_few(config, given, "fixmatch" if image else "ridge")
    trials = list(_trials(key, config, given, order, _told(given, answers)))
    return _best(config, trials, _weights(given))


def better(later: Trial, earlier: Trial, weights: Float[np.ndarray, " answers"], errors: float = 1.0) -> bool:
    """Whether a method is better than another by more than one standard error of the difference, or several.

    >>> answers = np.arange(5)
    >>> one, two = Trial("a", answers, np.array([1.0, 0, 0, 0, 1])), Trial("b", answers, np.ones(5))
    >>> better(two, one, np.ones(5)), better(one, two, np.ones(5)), better(one, one, np.ones(5))
    (True, False, False)
    """
    mean, error = difference(later, earlier, weights)
    return mean > errors * error


def difference(later: Trial, earlier: Trial, weights: Float[np.ndarray, " answers"]) -> tuple[float, float]:
    """Mean and standard error of how much better a method is, on the answers that judge both."""
    both, ours, theirs = np.intersect1d(later.places, earlier.places, return_indices=True)
    return weighted(later.scores[ours] - earlier.scores[theirs], weights[both])


def weighted(
    values: Float[np.ndarray, " judged"], weights: Float[np.ndarray, " judged"]
) -> tuple[float, float]:
    """The weighted mean, and its standard error.

    >>> weighted(np.array([1.0, 0.0, 1.0, 0.0]), np.ones(4))
    (0.5, 0.28867513459481287)
    """
    mean = float(np.average(values, weights=weights))
    squares = float((weights**2 * (values - mean) ** 2).sum()) / float(weights.sum()) ** 2
    return mean, math.sqrt(squares * len(values) / max(1, len(values) - 1))


def _of_few(config: Auto, given: Lesson, method: str) -> Choice:
    """A fixed method, where answers are too few to compare any."""
    progress.say(
        f"student: {len(given.rows)} answers of {len(np.unique(given.labels))} classes are too few to "
        f"compare methods by: trained by {method}"
    )
    return Choice(with_method(config, method), [])


def _told(given: Lesson, answers: Answers) -> np.ndarray:
    """What each answer says of each class [answer, class]: 1 of its label, or noisy shares."""
    if given.soft is None:
        return np.eye(given.public.classes)[given.labels]
    return np.asarray(answers.shares, np.float64)[given.rows]


def _weights(given: Lesson) -> np.ndarray:
    """How much each answer counts: of soft ones by how little of their variance is noise."""
    return np.ones(len(given.rows)) if given.soft is None else given.soft.weights.astype(np.float64)


def _trials(
    key: jax.Array, config: Auto, given: Lesson, order: tuple[str, ...], told: np.ndarray
) -> Iterator[Trial]:
    """All methods, the simplest first; one that cannot learn from these inputs is left out, and says why."""
    best: Trial | None = None
    for method in order:
        settings = with_method(config, method).resolved(image=given.public.inputs.ndim in IMAGE_RANKS)
        try:
            if isinstance(settings, AnyNet):
                found = _of_net(key, settings, given, told, best, method == order[-1])
            else:
                labels = ridge.left_out(nets.seeds(key[None])[0], given).argmax(1)
                found = _judged(method, np.arange(len(labels)), labels, told)
        except PateError as error:
            progress.say(f"student: {method} is left out, since {error}")
            continue
        if best is None or better(found, best, _weights(given)):
            best = found
        yield found


def _of_net(
    key: jax.Array,
    settings: AnyNet,
    given: Lesson,
    told: np.ndarray,
    best: Trial | None,
    last: bool,
) -> Trial:
    """A net by the answers that it has not seen, part after part until it is clear what it is worth.

    A part's training ends as soon as the net is taken, since more steps would hardly make it worse.
    """
    steps = -(-(settings.steps or 1) // _STEPS)
    tried = dataclasses.replace(settings, steps=steps, hold_out=0.0, patience=0)
    labels, weights = np.full(len(given.rows), -1), _weights(given)

    def judged(held, given_labels):
        labels[held] = given_labels
        there = np.flatnonzero(labels >= 0)
        return _judged(settings.method, there, labels[there], told)

    for seen, held in _folds(key, len(given.rows)):
        asked = given.rows[held]

        def is_taken(given_labels, held=held):
            return _is_better(judged(held, given_labels), best, weights)

        exam = nets.Exam(asked, is_taken) if last else None
        learned = NETS[settings.method](tried, key[None], given.part(seen), exam)[0]
        found = judged(held, learned.student(given.public)(given.public.inputs[asked]).argmax(1))
        if _is_worse(found, best, weights) or (last and _is_better(found, best, weights)):
            break
    return found


def _is_worse(found: Trial, best: Trial | None, weights: np.ndarray) -> bool:
    """Whether more answers would hardly make a method the best."""
    return best is not None and better(best, found, weights, _CLEARLY)


def _is_better(found: Trial, best: Trial | None, weights: np.ndarray) -> bool:
    """Whether a method is the best, and more answers or steps would hardly change that."""
    return best is None or better(found, best, weights, _CLEARLY)


def _folds(key: jax.Array, answers: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Answers to learn from, equally many each time, and those that are held out; together they are all."""
    order = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist()).permutation(answers)
    parts = np.array_split(order, _PARTS)
    for part in range(_PARTS):
        others = np.concatenate([each for place, each in enumerate(parts) if place != part])
        yield np.sort(others[: answers - len(parts[0])]), np.sort(parts[part])


def _judged(method: str, places: np.ndarray, labels: np.ndarray, told: np.ndarray) -> Trial:
    return Trial(method, places, told[places, labels].astype(np.float64))


def _best(config: Auto, trials: list[Trial], weights: np.ndarray) -> Choice:
    """The last method that is better than the best before it, and how good all are."""
    if not trials:
        raise PateError("no student can learn from these public inputs: name a method (--student.method)")
    best, comparison = trials[0], []
    for trial in trials:
        best = trial if better(trial, best, weights) else best
        score, error = weighted(trial.scores, weights[trial.places])
        comparison.append(Judged(method=trial.method, score=score, error=error, answers=len(trial.scores)))
        progress.say(
            f"student: {trial.method} agrees with {score:.1%} (+- {error:.1%}) of {len(trial.scores)} noisy "
            "answers that it has not seen"
        )
    progress.say(f"student: trained by {best.method}")
    return Choice(with_method(config, best.method), comparison)
