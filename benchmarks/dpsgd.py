"""Steps of DP-SGD a second, beside Opacus: the same net, clip, noise and expected batch, in turns.

    python benchmarks/dpsgd.py --rounds 5

Needs the extras `baselines` and `bench`. A step draws its records, sums clipped gradients, adds noise and
moves the parameters. Opacus draws its records by the same kind of coins; the faster of its two ways counts.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext

from pate_jax.system import devices

devices.prepare()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import measurement  # noqa: E402
import numpy as np  # noqa: E402
import opacus  # noqa: E402
import torch  # noqa: E402
from jax.flatten_util import ravel_pytree  # noqa: E402
from opacus.optimizers import DPOptimizer  # noqa: E402
from torch import nn  # noqa: E402

from pate_jax import models  # noqa: E402
from pate_jax.aggregate import fresh_key  # noqa: E402
from pate_jax.baselines import dpsgd  # noqa: E402
from pate_jax.baselines.dpsgd import calibration, gradients, training  # noqa: E402

OPACUS = {"opacus_hooks": "hooks", "opacus_functorch": "functorch"}
RECORDS, BATCH, CLIP, MULTIPLIER, RATE = 60_000, 1024, 0.1, 1.35, 2.0


def ours(inputs: np.ndarray, labels: np.ndarray) -> Callable[[], int]:
    model = models.build("papernot2021", input_shape=(28, 28, 1), classes=10, activation="tanh")
    flat, unflatten = ravel_pytree(model.init(jax.random.key(0)))
    settings = dpsgd.Settings(batch=BATCH, clip=CLIP, learning_rate=RATE)
    sums = gradients.sums(model, lambda seen: seen, CLIP, len(flat))
    advance, chance = training._advance(settings), calibration.rate_of(BATCH, RECORDS)
    labels, key = labels.astype(np.int32), fresh_key()
    state, step = (flat, jnp.zeros_like(flat), flat), 0

    def run() -> int:
        nonlocal state, step
        sample_key, noise_key = training._keys(key, step)
        rows = calibration.draw(sample_key, RECORDS, chance)
        total = training._total(sums, unflatten(state[0]), inputs, labels, rows, settings.microbatch)
        mean = gradients.noisy(total, CLIP, MULTIPLIER, noise_key) / BATCH
        state, step = advance(state, jnp.asarray(mean, jnp.float32), step), step + 1
        return len(rows)

    return run


def of_opacus(inputs: np.ndarray, labels: np.ndarray, mode: str) -> Callable[[], int]:
    layers = [nn.Conv2d(1, 16, 8, 2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1)]
    layers += [nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1), nn.Flatten()]
    net = nn.Sequential(*layers, nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10))
    model = opacus.grad_sample.utils.wrap_model(net, grad_sample_mode=mode)
    rule = DPOptimizer(
        torch.optim.SGD(model.parameters(), RATE, momentum=0.9),
        noise_multiplier=MULTIPLIER,
        max_grad_norm=CLIP,
        expected_batch_size=BATCH,
    )
    x, y = torch.tensor(inputs).permute(0, 3, 1, 2).contiguous(), torch.tensor(labels)

    def run() -> int:
        rows = torch.nonzero(torch.rand(RECORDS) < BATCH / RECORDS)[:, 0]
        rule.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        rule.step()
        return len(rows)

    return run


def speed(run: Callable[[], int], seconds: float) -> tuple[float, float]:
    """Records a second, by the clock and by the processors' time."""
    done, begun, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - begun < seconds:
        done += run()
    return done / (time.perf_counter() - begun), done / (time.process_time() - used)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each way in each round")
    measurement.add_busy(parser)
    asked = parser.parse_args()
    before = measurement.load(asked.busy)
    random = np.random.default_rng(0)
    inputs = random.random((RECORDS, 28, 28, 1)).astype(np.float32)
    labels = random.integers(0, 10, RECORDS)
    ways = {"ours": ours(inputs, labels)}
    ways |= {name: of_opacus(inputs, labels, mode) for name, mode in OPACUS.items()}
    for run in ways.values():
        run()
    # A training keeps the memory that it frees; Opacus is measured as it comes, and with that help as well.
    cases = {"ours": True, **dict.fromkeys(OPACUS, False)}
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(asked.rounds):
        for name, kept in [*cases.items(), *dict.fromkeys(OPACUS, True).items()]:
            told = f"{name}_kept" if kept and name in OPACUS else name
            with devices.kept_memory() if kept else nullcontext():
                ways[name]()
                found.setdefault(told, []).append(speed(ways[name], asked.seconds))
    clock, cpu = (
        {name: round(statistics.median(one[which] for one in each)) for name, each in found.items()}
        for which in (0, 1)
    )
    best, helped = (max(clock[name + end] for name in OPACUS) for end in ("", "_kept"))
    told = {
        "records_per_second": clock,
        "records_per_cpu_second": cpu,
        "ratio": round(clock["ours"] / best, 2),
        "ratio_with_kept_memory": round(clock["ours"] / helped, 2),
    }
    told |= {"load_before": before, "rounds": asked.rounds, "torch_threads": torch.get_num_threads()}
    print(json.dumps({**told, "opacus": opacus.__version__, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
