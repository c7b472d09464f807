"""What the space of photos is worth, on drawn scenes: `python -m experiments.photos --kinds 100 400`.

Beside it stands the space that grey pictures have (100 kinds of 5 x 5 patches in 7 x 7 cells). One line of
JSON for each space: photos a second, in turns on the same photos; the share of test scenes that ridge
regression on all records names right, without privacy; and what one table of noisy sums makes of them at
epsilon, mean of some draws of the noise. Labels are nobody's.
"""

from __future__ import annotations

import argparse
import json
import time

from pate_jax.system import devices, headcount

devices.prepare()

import numpy as np  # noqa: E402

from experiments import crowds, scenes  # noqa: E402
from pate_jax.data import Preprocessing  # noqa: E402
from pate_jax.models import patches, photos  # noqa: E402
from pate_jax.models.spaces import fronts  # noqa: E402
from pate_jax.models.spaces.space import BLOCK, over  # noqa: E402

AS_PIXELS = Preprocessing((0.0,), (255.0,))
PENALTIES = 10.0 ** np.arange(-4, 2)  # of ridge regression, as shares of the mean square


def fronts_of(pool: np.ndarray, kinds: list[int]) -> dict[str, fronts.Front]:
    """Today's front of pictures, and that of photos with each number of kinds."""
    seen = np.asarray(AS_PIXELS.apply(pool), np.float32)
    made: dict[str, fronts.Front] = {"as pictures": fronts.Patches(patches.learn(seen), AS_PIXELS)}
    for each in kinds:
        made[f"{each} kinds"] = fronts.Photos(photos.learn(seen, kinds=each), AS_PIXELS)
    return made


def speeds(made: dict[str, fronts.Front], some: np.ndarray, turns: int = 3) -> dict[str, float]:
    """Photos a second of each front, in turns, the fastest of these."""
    taken: dict[str, list[float]] = {name: [] for name in made}
    for turn in range(turns + 1):  # the first compiles
        for name, front in made.items():
            began = time.perf_counter()
            front(some)
            taken[name] += [time.perf_counter() - began] * (turn > 0)
    return {name: len(some) / min(times) for name, times in taken.items()}


def without_privacy(here: crowds.Prepared) -> float:
    """The share of test scenes that ridge regression names right, with the penalty that suits them best."""
    variances = here.space.variances
    weights = 1 / np.sqrt(variances + 1e-3 * variances[0])
    seen, tested = (here.places[part] * weights for part in ("private", "test"))
    labels, truth = here.labels["private"], here.labels["test"]
    assert labels is not None and truth is not None
    middle, square = seen.mean(0), np.cov(seen.T, bias=True)
    pull = (seen - middle).T @ (np.eye(here.classes)[labels] - 1 / here.classes) / len(seen)
    right = []
    for penalty in PENALTIES:
        fitted = np.linalg.solve(
            square + penalty * np.trace(square) / len(square) * np.eye(len(square)), pull
        )
        right.append(float((((tested - middle) @ fitted).argmax(1) == truth).mean()))
    return max(right)


def main() -> None:
    """Measure the spaces one after another."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--pool", type=int, default=5_000)
    parser.add_argument("--kinds", type=int, nargs="*", default=[400])
    parser.add_argument("--directions", type=int, default=400)
    parser.add_argument("--epsilon", type=float, nargs="*", default=[1.0])
    parser.add_argument("--draws", type=int, default=3)
    chosen = parser.parse_args()
    sizes = {"private": chosen.records, "pool": chosen.pool, "test": 3_000}
    parts = {part: scenes.drawn(size, seed) for seed, (part, size) in enumerate(sizes.items())}
    inputs, labels = ({part: each[what] for part, each in parts.items()} for what in (0, 1))
    made = fronts_of(inputs["pool"], chosen.kinds)
    quick = speeds(made, inputs["pool"][: BLOCK // 2])
    for name, front in made.items():
        space = over(front, inputs["pool"], chosen.directions)
        places = {part: space.coordinates(each) for part, each in inputs.items()}
        voters = headcount.coarse(chosen.records)
        here = crowds.Prepared(name, scenes.CLASSES, space, places, dict(labels), voters)
        told = {"space": name, "records": chosen.records, "features": len(space.middle)}
        told |= {"photos_a_second": round(quick[name]), "cores": devices.cores()}
        told |= {"times_the_first": round(quick[name] / quick["as pictures"], 2)}
        told["without_privacy"] = round(100 * without_privacy(here), 1)
        for epsilon in chosen.epsilon:
            found = crowds.by_sums(here, epsilon, chosen.draws)
            told[f"at_{epsilon:g}"] = {name: found[name] for name in ("test", "pool", "directions")}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
