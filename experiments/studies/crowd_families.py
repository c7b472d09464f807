"""Made-up data on which rules for crowds are judged: images, tables and vectors, drawn by rule from seeds.

No record of anybody is among them. Images are the package's own; a table has columns of numbers and of
words that hidden factors move, and labels that the columns decide with some chance; vectors lie in
clusters, several of each class, or along a falling spectrum as encoders' do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pate_jax.data import synthetic
from pate_jax.models import spaces

PRIVATE, POOL, TEST = 20_000, 3_000, 2_000  # records of a family, unless it is a small one
DIRECTIONS = 250

Drawn = tuple[Float[np.ndarray, "record columns"], Int[np.ndarray, " record"]]


class Family(NamedTuple):
    """A data set in its space: coordinates of three parts, and the labels of two."""

    name: str
    classes: int
    space: spaces.Space
    private: Int[np.ndarray, "record directions"]
    labels: Int[np.ndarray, " record"]
    pool: Int[np.ndarray, "pool directions"]
    test: Int[np.ndarray, "test directions"]
    truth: Int[np.ndarray, " test"]

    def shortened(self, records: int) -> Family:
        """The same with its first private records only."""
        return self._replace(private=self.private[:records], labels=self.labels[:records])


def images(name: str, kind: str, classes: int, difficulty: float) -> Family:
    """Drawn characters, seen by their patches."""
    sizes = {"public_size": POOL, "test_size": TEST, "difficulty": difficulty}
    made = (
        synthetic.strokes(PRIVATE, **sizes)
        if kind == "strokes"
        else synthetic.glyphs(PRIVATE, classes=classes, **sizes)
    )
    parts = (made.private, made.public, made.test)
    space = spaces.learn("patches", made.public.inputs, made.preprocessing, directions=DIRECTIONS)
    seen = [space.coordinates(part.inputs) for part in parts]
    return Family(name, made.classes, space, seen[0], parts[0].labels, *seen[1:], parts[2].labels)


def table(
    random: np.random.Generator,
    records: int,
    *,
    numbers: int,
    words: int = 0,
    categories: int = 6,
    factors: int = 4,
    relevant: float = 0.5,
    bent: float = 0.0,
    sure: float = 3.0,
    classes: int = 2,
    unequal: float = 0.0,
) -> Drawn:
    """Numbers, some with heavy tails, and words as one-hot groups, both moved by the same hidden factors.

    A share `relevant` of the columns decides; `bent` is how much of a score is no linear function of them,
    `sure` how seldom a label differs from the largest score, and `unequal` how rare the last class is.
    """
    hidden = random.normal(size=(records, factors))
    columns = hidden @ random.normal(size=(factors, numbers)) / factors**0.5
    columns = columns + random.normal(size=columns.shape) * random.uniform(0.3, 2, numbers)
    columns = (columns - columns.mean(0)) / columns.std(0)
    heavy = random.random(numbers) < 0.3
    columns[:, heavy] = np.exp(columns[:, heavy])
    groups = []
    for _ in range(words):
        usual = -random.uniform(0.3, 1.5) * np.arange(categories)
        told = hidden @ random.normal(size=(factors, categories)) + usual
        groups.append(np.eye(categories)[(told + random.gumbel(size=told.shape)).argmax(1)])
    scaled = (columns - columns.mean(0)) / columns.std(0)
    inputs = np.concatenate([scaled, *groups], 1)
    weights = (
        random.normal(size=(inputs.shape[1], classes)) * (random.random(inputs.shape[1]) < relevant)[:, None]
    )
    scores = _unit(np.tanh(inputs) @ weights)
    corners = np.sin(
        1.5 * inputs @ random.normal(size=(inputs.shape[1], 3 * classes)) / inputs.shape[1] ** 0.5
    )
    scores = (1 - bent) * scores + bent * _unit(corners @ random.normal(size=(3 * classes, classes)))
    scores = sure * scores - unequal * np.arange(classes)
    return inputs, (scores + random.gumbel(size=scores.shape)).argmax(1)


def clusters(
    random: np.random.Generator,
    records: int,
    *,
    numbers: int,
    classes: int = 5,
    each: int = 3,
    apart: float = 1.5,
    fall: float = 0.5,
) -> Drawn:
    """Several clusters a class, of falling variance along random directions."""
    spread = np.arange(1, numbers + 1) ** -fall
    axes = np.linalg.qr(random.normal(size=(numbers, numbers)))[0]
    middles = random.normal(size=(classes * each, numbers)) * spread**2 * apart
    kind = random.choice(classes * each, records, p=random.dirichlet(np.full(classes * each, 3.0)))
    inside = random.normal(size=(records, numbers)) * spread
    return (middles[kind] + inside) @ axes, kind % classes


def encoded(
    random: np.random.Generator,
    records: int,
    *,
    numbers: int,
    classes: int = 2,
    fall: float = 0.6,
    sure: float = 3.0,
    unequal: float = 0.0,
) -> Drawn:
    """Vectors of length 1 with a falling spectrum; scores of labels prefer the first directions."""
    spread = np.arange(1, numbers + 1) ** -fall
    inside = random.normal(size=(records, numbers)) * spread
    weights = random.normal(size=(numbers, classes)) * spread[:, None] ** random.uniform(0, 1.5)
    scores = sure * _unit(inside / spread @ weights) - unequal * np.arange(classes)
    axes = np.linalg.qr(random.normal(size=(numbers, numbers)))[0]
    inputs = inside @ axes + random.normal(size=numbers) * 0.5
    labels = (scores + random.gumbel(size=scores.shape)).argmax(1)
    return inputs / np.linalg.norm(inputs, axis=1, keepdims=True), labels


def numeric(
    name: str,
    kind: spaces.Kind,
    drawn: Callable[..., Drawn],
    seed: int,
    sizes: tuple[int, int, int] | None = None,
) -> Family:
    """A family of tables or vectors, in the space that suits it."""
    private, pool, test = sizes or (PRIVATE, POOL, TEST)
    inputs, labels = drawn(np.random.default_rng(seed), private + pool + test)
    inputs = inputs.astype(np.float32)
    rows = np.split(np.arange(len(inputs)), [private, private + pool])
    space = spaces.learn(kind, inputs[rows[1]], directions=DIRECTIONS)
    seen = [space.coordinates(inputs[part]) for part in rows]
    classes = int(labels.max()) + 1
    return Family(name, classes, space, seen[0], labels[rows[0]], *seen[1:], labels[rows[2]])


def _unit(scores: np.ndarray) -> np.ndarray:
    return (scores - scores.mean(0)) / scores.std(0)


_FEW = (1_500, 400, 1_500)  # records of a small family
_IMAGES = [
    ("strokes", "strokes", 10, 1.0),
    ("hard strokes", "strokes", 10, 2.0),
    ("10 hard glyphs", "glyphs", 10, 2.0),
    ("26 glyphs", "glyphs", 26, 1.0),
    ("40 hard glyphs", "glyphs", 40, 1.6),
    ("100 glyphs", "glyphs", 100, 1.2),
]
_TABLES = [
    ("linear table", {"numbers": 12}, None),
    ("wide linear table", {"numbers": 60, "words": 10, "relevant": 0.2}, None),
    ("bent table", {"numbers": 8, "bent": 0.5}, None),
    ("words", {"numbers": 2, "words": 10, "categories": 10}, None),
    ("rare words", {"numbers": 5, "words": 12, "categories": 16, "relevant": 0.3, "unequal": 1.0}, None),
    ("correlated table", {"numbers": 40, "factors": 2, "words": 2}, None),
    ("unequal table", {"numbers": 10, "words": 5, "unequal": 2.0, "sure": 1.5}, None),
    ("five classes", {"numbers": 15, "words": 4, "classes": 5, "unequal": 0.5}, None),
    ("faint table", {"numbers": 20, "words": 4, "sure": 1.0}, None),
    ("many columns, few rows", {"numbers": 120, "words": 10, "relevant": 0.2}, _FEW),
    ("few columns, few rows", {"numbers": 6, "words": 1, "bent": 0.3}, _FEW),
]
_CLUSTERS = [
    ("clusters of 20 numbers", {"numbers": 20, "apart": 2.0}, None),
    ("clusters of 100 numbers", {"numbers": 100, "classes": 10, "each": 2}, None),
    ("many clusters", {"numbers": 60, "classes": 4, "each": 12, "apart": 2.5}, None),
    ("clusters of 500 numbers", {"numbers": 500, "classes": 8, "apart": 0.8, "fall": 0.3}, None),
    ("close clusters", {"numbers": 50, "classes": 3, "apart": 0.8}, None),
]
_ENCODED = [
    ("encoded, 2 classes", {"numbers": 256}, None),
    ("encoded, unequal", {"numbers": 256, "sure": 2.0, "unequal": 1.5}, None),
    ("encoded, 10 classes", {"numbers": 384, "classes": 10, "fall": 0.4}, None),
    ("encoded, few rows", {"numbers": 256, "sure": 2.0, "unequal": 0.7}, (3_200, 800, 2_000)),
]


def families(seed: int = 0) -> dict[str, partial[Family]]:
    """How each family is made, by name; another seed draws other tables and vectors."""
    made: dict[str, partial[Family]] = {each[0]: partial(images, *each) for each in _IMAGES}
    groups: list[tuple[list, spaces.Kind, Callable[..., Drawn]]] = [
        (_TABLES, "columns", table),
        (_CLUSTERS, "identity", clusters),
        (_ENCODED, "identity", encoded),
    ]
    for members, kind, drawn in groups:
        for number, (name, settings, sizes) in enumerate(members):
            made[name] = partial(numeric, name, kind, partial(drawn, **settings), 100 * seed + number, sizes)
    return made


def kept(name: str, folder: Path, seed: int = 0) -> Family:
    """A family, read from a folder where it was made before."""
    path = folder / f"{name}-{seed}.npz"
    if not path.exists():
        made = families(seed)[name]()
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {field: getattr(made, field) for field in ("private", "labels", "pool", "test", "truth")}
        np.savez(path, classes=made.classes, variances=made.space.variances, **arrays)
    with np.load(path) as file:
        arrays = {field: file[field] for field in file.files}
    variances, classes = arrays.pop("variances"), int(arrays.pop("classes"))
    space = spaces.learn("identity", np.eye(len(variances) + 2)).narrowed(1)
    bare = space._replace(directions=np.ones((1, len(variances)), np.float32), variances=variances)
    return Family(name, classes, bare, **arrays)
