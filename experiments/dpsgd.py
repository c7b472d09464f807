"""DP-SGD on MNIST or Fashion-MNIST, as "Tempered sigmoid activations" (Papernot et al. 2021) trains it.

    python -m experiments.dpsgd mnist --epsilon 2.93 --activation tanh --seed 1

Settings are those of `dpsgd.choose`. All 10,000 test images measure; none of them chooses anything.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from pate_jax import data
from pate_jax.aggregate import seeded_key
from pate_jax.baselines import dpsgd


def main():
    """Train once, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dataset", choices=("mnist", "fashion_mnist"))
    parser.add_argument("--epsilon", type=float, default=2.93)
    parser.add_argument("--activation", default="tanh", choices=("relu", "tanh"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--records", type=int, help="train on the first so many only, for a trial")
    parser.add_argument("--manual-dir", type=Path, help="folder with the original archives")
    asked = parser.parse_args()
    loaded = data.load(asked.dataset, manual_dir=asked.manual_dir)
    inputs, labels = loaded.private.inputs[: asked.records], loaded.private.labels[: asked.records]
    settings = dpsgd.choose(
        len(inputs), loaded.classes, image=True, epsilon=asked.epsilon, activation=asked.activation
    )
    begun, cpu = time.time(), time.process_time()
    fitted = dpsgd.fit(
        inputs,
        labels,
        loaded.classes,
        settings,
        key=seeded_key(asked.seed),
        preprocessing=loaded.preprocessing,
    )
    used, took = time.process_time() - cpu, time.time() - begun
    parts = [loaded.public, loaded.test]
    tested = np.concatenate([part.inputs for part in parts])
    accuracy = fitted.accuracy(tested, np.concatenate([part.labels for part in parts]))
    told = {"dataset": asked.dataset, "activation": asked.activation, "seed": asked.seed}
    told |= {"test": len(tested), "accuracy": round(accuracy, 4), "epsilon": round(fitted.epsilon, 4)}
    told |= {"epsilon_changed": round(fitted.replaced, 4), "noise_multiplier": fitted.noise_multiplier}
    told |= {
        "steps": settings.steps,
        "batch": settings.batch,
        "cpu_seconds": round(used),
        "seconds": round(took),
    }
    print(json.dumps({**told, "examples_per_cpu_second": round(settings.steps * settings.batch / used)}))


if __name__ == "__main__":
    main()
