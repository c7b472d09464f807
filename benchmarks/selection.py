"""What a bought label is worth, by how the inputs to ask about were chosen: MNIST, 250 saved teachers.

Every way pays the same for an answer (Gaussian noise of scale 40). The lists grow in rounds of 25 to 50 for
`uncertainty` and `interactive`; the latter also pays for a test, and buys only where the teachers contradict
the student. A figure is the accuracy on the 1,000 test images outside the pool, mean over seeds of noise,
choice and student. The epsilon is the publishable, data-independent one over all inputs asked.

    python benchmarks/selection.py FOLDER --seeds 3

FOLDER holds mnist/ (the archives) and votes/cnn_mnist_250.npz (teacher_labels, labels).
"""

from __future__ import annotations

import argparse
import gzip
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from pate_jax.system import devices

devices.prepare()

import jax  # noqa: E402
import numpy as np  # noqa: E402
from measurement import add, machine  # noqa: E402

from pate_jax import accounting, aggregate, voting  # noqa: E402
from pate_jax.aggregate import Answers, interactive, noise  # noqa: E402
from pate_jax.data import Preprocessing  # noqa: E402
from pate_jax.mechanisms import GNMax, InteractiveGNMax, Mechanism  # noqa: E402
from pate_jax.student import PublicInputs, Supervised, contrast, fit, selection  # noqa: E402

POOL, BUDGETS, ROUNDS = 9000, (50, 100, 250), (25, 25, 50, 50, 50, 50)
PLAIN = GNMax(40.0)
ADAPTIVE = ("uncertainty", "interactive")
WAYS = ("random", "kmeans", "learned", *ADAPTIVE)
INTERACTIVE = InteractiveGNMax(100.0, 100.0, 40.0, 0.95)


class Mnist:
    """The pool, its votes, and the images outside it."""

    def __init__(self, folder: Path) -> None:
        packed = gzip.decompress((folder / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())
        images = np.frombuffer(packed, np.uint8, offset=16).reshape(-1, 28, 28, 1)
        with np.load(folder / "votes" / "cnn_mnist_250.npz", allow_pickle=False) as saved:
            told, self.labels = saved["teacher_labels"], saved["labels"]
        self.votes = np.asarray(voting.histogram(told, 10))
        names = tuple(map(str, range(10)))
        self.public = PublicInputs(images[:POOL], Preprocessing((0.0,), (255.0,)), 10, names)
        self.test = images[POOL:], self.labels[POOL:]


def student(key: Any, public: PublicInputs, answers: Answers, steps: int) -> Any:
    return fit(key, public, answers, Supervised(steps=steps))


def bought(way: str, mnist: Mnist, seed: int, steps: int) -> selection.Bought:
    """All rows asked about and their answers, in the order of asking."""
    keys = iter(jax.random.split(noise.seeded_key(seed), len(ROUNDS)))

    def ask(rows: np.ndarray, probabilities: np.ndarray) -> Answers:
        if way == "interactive":
            return interactive.answer(INTERACTIVE, mnist.votes[rows], probabilities, key=next(keys))
        return aggregate.answer(PLAIN, mnist.votes[rows], key=next(keys))

    def learn(key: Any, public: PublicInputs, answers: Answers) -> Any:
        return student(key, public, answers, steps)

    return selection.ask_in_rounds(jax.random.key(seed), mnist.public, list(ROUNDS), ask=ask, learn=learn)


def fixed(way: Any, mnist: Mnist, seed: int, budget: int) -> selection.Bought:
    scale = mnist.public.preprocessing
    inputs, key = mnist.public.inputs, b"seed %d" % seed
    if way == "learned":  # once a seed, where select would learn once a budget
        rows = selection.cover(learned_features(mnist, seed), budget, np.random.default_rng(seed))
    else:
        rows = selection.select(way, inputs, budget, key=key, preprocessing=scale)
    answers = aggregate.answer(PLAIN, mnist.votes[rows], key=noise.seeded_key(seed))
    return selection.Bought(rows, answers, np.zeros((budget, 10), np.float32))


@lru_cache
def learned_features(mnist: Mnist, seed: int) -> np.ndarray:
    return contrast.features(mnist.public.inputs, mnist.public.preprocessing, key=jax.random.key(seed))


def first_of(whole: selection.Bought, asked: int) -> selection.Bought:
    return jax.tree.map(lambda leaf: leaf[:asked], whole)


def measure(found: selection.Bought, mnist: Mnist, seed: int, steps: int) -> dict[str, float]:
    answers = found.for_student()
    answered = np.asarray(found.answers.answered)
    right = np.asarray(found.answers.labels) == mnist.labels[found.rows]
    public = selection._reordered(mnist.public, found.rows)
    learned = student(jax.random.key(1000 + seed), public, answers, steps)
    return {
        "bought": int(answered.sum()),
        "free_labels": int(np.asarray(answers.answered).sum() - answered.sum()),
        "label_accuracy": float(right[answered].mean()),
        "accuracy": learned.accuracy(*mnist.test),
    }


def epsilon(mechanism: Mechanism, found: selection.Bought, mnist: Mnist, adaptive: bool) -> float | None:
    answered = np.asarray(found.answers.answered)
    votes = mnist.votes[found.rows]
    stated = accounting.statement(mechanism, votes, answered, 1e-5, adaptive=adaptive, private=False)
    return stated.headline.epsilon


def lines(mnist: Mnist, ways: list[str], seeds: int, steps: int) -> Iterator[dict[str, Any]]:
    """One for each way and budget."""
    for way in ways:
        adaptive = way in ADAPTIVE
        whole = [bought(way, mnist, seed, steps) if adaptive else None for seed in range(seeds)]
        for budget in BUDGETS:
            lists = [
                fixed(way, mnist, seed, budget) if each is None else first_of(each, budget)
                for seed, each in enumerate(whole)
            ]
            found = [measure(each, mnist, seed, steps) for seed, each in enumerate(lists)]
            mean = {name: round(float(np.mean([one[name] for one in found])), 4) for name in found[0]}
            mechanism = INTERACTIVE if way == "interactive" else PLAIN
            spread = [round(one["accuracy"], 4) for one in found]
            cost = epsilon(mechanism, lists[0], mnist, adaptive)
            yield {"selection": way, "asked": budget, **mean, "accuracies": spread, "epsilon": cost}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    chosen = parser.parse_args()
    mnist, began = Mnist(chosen.folder), time.perf_counter()
    about = {
        **machine(),
        "command": f"python benchmarks/selection.py FOLDER --seeds {chosen.seeds} --steps {chosen.steps}",
        "student": f"supervised cnn, {chosen.steps} steps",
        "seeds": chosen.seeds,
    }
    for line in lines(mnist, chosen.ways, chosen.seeds, chosen.steps):
        add("selection", {**about, **line, "seconds": round(time.perf_counter() - began)})


if __name__ == "__main__":
    main()
