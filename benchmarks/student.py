"""Images a second of each way to train a student, beside the same losses in PyTorch eager.

Same net (the small CNN), same batches, same distortions by the same formulas, same optimiser and running
average; ours and PyTorch take turns, and a ratio is the median over the rounds. PyTorch is optional.

    python benchmarks/student.py --rounds 5
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from typing import Any

from pate_jax.system import devices

devices.prepare()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import measurement  # noqa: E402
import numpy as np  # noqa: E402
from measurement import Way, add, machine, way  # noqa: E402

from pate_jax import models  # noqa: E402
from pate_jax.data import Preprocessing  # noqa: E402
from pate_jax.models import Form  # noqa: E402
from pate_jax.student import (  # noqa: E402
    PublicInputs,
    StudentConfig,
    Supervised,
    Tandem,
    named,
    settings,
    training,
)
from pate_jax.student.methods import losses as objectives  # noqa: E402
from pate_jax.student.methods import nets  # noqa: E402

METHODS = {
    "supervised": objectives.supervised,
    "vat": objectives.vat,
    "gan": nets.objective,
    "fixmatch": objectives.fixmatch,
    "tandem": objectives.supervised,
}
POOL, ANSWERS, CLASSES, STEPS = 9000, 250, 10, 10
PACE = np.array([10**5, 10**9, 10**9 + 1])  # steps that are planned, and when the learning rate falls beside
SCALE = Preprocessing((0.0,), (255.0,))


def blobs() -> tuple[np.ndarray, np.ndarray]:
    """Ten kinds of bright patch on noise, so that a student learns and grows confident as on real images."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, POOL).astype(np.int32)
    images = rng.integers(0, 40, (POOL, 28, 28, 1))
    for row, label in enumerate(labels):
        top, left = 4 + 11 * (label // 5), 1 + 5 * (label % 5)
        images[row, top : top + 8, left : left + 5] += 200
    return images.astype(np.uint8), labels


def config_of(method: str) -> StudentConfig:
    """The method's own recipe; of `tandem` that of its small net, which is a supervised student."""
    if method != "tandem":
        return named(method, steps=10**5).resolved(image=True)
    recipe = Tandem(steps=10**5).resolved(image=True)
    shared = settings.names(Supervised) & settings.names(Tandem)
    return Supervised(net="cnn", **{name: getattr(recipe, name) for name in shared})


def taught(method: str) -> int:
    """Inputs with an answer: of `tandem` all, which ridge answers."""
    return POOL if method == "tandem" else ANSWERS


def per_step(config: StudentConfig) -> int:
    return config.batch_size * (1 + (0 if config.method == "supervised" else config.unlabelled or 1))


def ours(method: str, form: Form | None = None) -> Way:
    """The program that `student.fit` runs; `form` replaces the convolution form that it would choose."""
    config, (images, labels) = config_of(method), blobs()
    public = PublicInputs(images, SCALE, CLASSES, tuple(map(str, range(CLASSES))))
    chosen = form or nets.form_of(config.net, False)
    model, keys = nets.build(public, config, chosen), jax.random.key(0)[None]
    about = json.dumps(model.description)
    ready = nets._program(METHODS[method], about, chosen, config, SCALE, nets.implementation(keys), False)
    rows = jnp.arange(taught(method), dtype=jnp.int32)
    pool = training.Pool(
        jnp.asarray(images), len(rows), rows, jnp.asarray(labels[: len(rows)]), nets.typical_distance(public)
    )
    slots = np.arange(config.batch_size), np.arange(config.batch_size * (config.unlabelled or 1))
    slots = devices.shard_batch(slots, config.devices or nets.device_count(config.batch_size, True))
    everywhere = jax.sharding.NamedSharding(slots[0].sharding.mesh, jax.sharding.PartitionSpec())
    starts, streams = nets.streams(keys)
    starts, pool = jax.device_put((starts, pool), everywhere)
    held = [ready.start(starts), 0]

    def run() -> int:
        first, last = held[1], held[1] + STEPS
        held[:] = [ready.advance(held[0], streams, first, last, PACE, pool, *slots), last]
        jax.block_until_ready(held[0].loss)
        return STEPS * per_step(config)

    began = time.perf_counter()
    run()
    return way("ours" if form is None else f"ours_{form.convolution}", run, time.perf_counter() - began)


class Torch:
    """A student in plain PyTorch eager: what a PyTorch user would write for the same recipe."""

    def __init__(self, method: str, channels_last: bool) -> None:
        import torch
        from torch import nn

        self.torch, self.config, (images, labels) = torch, config_of(method), blobs()
        layers = [nn.Conv2d(1, 16, 3, padding="same"), nn.ReLU(), nn.MaxPool2d(2)]
        layers += [nn.Conv2d(16, 32, 3, padding="same"), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        self.net = nn.Sequential(*layers, nn.Linear(1568, 64), nn.ReLU(), nn.Linear(64, CLASSES))
        if channels_last:
            self.net = self.net.to(memory_format=torch.channels_last)
        self.average = [leaf.detach().clone() for leaf in self.net.parameters()]
        self.answers, learned = taught(method), list(self.net.parameters())
        if method == "gan":
            sizes = [nn.Linear(self.config.latent, 256), nn.ReLU(), nn.Linear(256, 512), nn.ReLU()]
            self.generator = nn.Sequential(*sizes, nn.Linear(512, 784), nn.Sigmoid())
            learned += list(self.generator.parameters())
        rule = {"lr": self.config.learning_rate, "weight_decay": self.config.weight_decay}
        moments = (self.config.first_moment, 0.999)
        self.rule = torch.optim.AdamW(learned, **rule, betas=moments, foreach=True)
        self.images, self.labels = torch.tensor(images).permute(0, 3, 1, 2), torch.tensor(labels).long()
        flat = images.reshape(POOL, -1) / 255.0
        self.scale = float(np.sqrt(((flat - flat.mean(0)) ** 2).sum(1).mean()))
        losses = {"vat": self.vat, "fixmatch": self.fixmatch, "gan": self.gan}
        self.loss = losses.get(method, self.supervised)

    def step(self) -> None:
        torch, size = self.torch, self.config.batch_size
        rows = torch.randint(self.answers, (size,))
        others = self.images[torch.randint(POOL, (size * (self.config.unlabelled or 1),))]
        self.rule.zero_grad()
        self.loss(self.images[rows], self.labels[rows], others).backward()
        self.rule.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.average, list(self.net.parameters()), 1 - self.config.average)

    def weak(self, images: Any) -> Any:
        """Each image moved by up to `shift` whole pixels."""
        torch, pixels = self.torch, self.config.shift or 0
        padded = torch.nn.functional.pad(images, (pixels,) * 4)[:, 0]
        start = torch.randint(2 * pixels + 1, (2, len(images), 1, 1))
        rows, columns = start[0] + torch.arange(28)[:, None], start[1] + torch.arange(28)
        return padded[torch.arange(len(images))[:, None, None], rows, columns][:, None].float() / 255

    def strong(self, images: Any) -> Any:
        """`weak`, then turn, shear, stretch, move, contrast, brightness, a hole: as `augment.distort`."""
        torch, size = self.torch, len(images)
        chosen = torch.rand(size, 9).argsort(1) < 4
        drawn = (2 * torch.rand(size, 9) - 1) * chosen
        angle = drawn[:, 0] * math.pi / 6
        cos, sin = angle.cos(), angle.sin()
        rotation = torch.stack([cos, sin, -sin, cos], 1).reshape(-1, 2, 2)
        shear = torch.eye(2).repeat(size, 1, 1)
        shear[:, 0, 1], shear[:, 1, 0] = 0.3 * drawn[:, 1], 0.3 * drawn[:, 2]
        matrix = (rotation @ shear) * torch.exp(0.3 * drawn[:, 3:5])[:, None]
        map_of = torch.cat([matrix, 0.24 * drawn[:, 5:7, None]], 2)
        grid = torch.nn.functional.affine_grid(map_of, (size, 1, 28, 28), align_corners=False)
        moved = torch.nn.functional.grid_sample(self.weak(images), grid, align_corners=False)
        level = moved.mean((1, 2, 3), keepdim=True)
        contrast, more = torch.exp(0.5 * drawn[:, 7]), 0.25 * drawn[:, 8]
        moved = (level + (moved - level) * contrast[:, None, None, None] + more[:, None, None, None]).clamp(
            0, 1
        )
        half = torch.rand(size, 1, 1) * 0.4 * 14
        centre = 28 * torch.rand(2, size, 1, 1)
        places = torch.arange(28) + 0.5
        hole = ((places[:, None] - centre[0]).abs() < half) & ((places - centre[1]).abs() < half)
        return torch.where(hole[:, None], moved.mean((1, 2, 3), keepdim=True), moved)

    def known(self, inputs: Any, labels: Any) -> Any:
        smoothing = self.config.label_smoothing or 0.0
        bent = self.config.method == "fixmatch" and self.config.distort_answers
        seen = self.strong(inputs) if bent else self.weak(inputs)
        return self.torch.nn.functional.cross_entropy(self.net(seen), labels, label_smoothing=smoothing)

    def supervised(self, inputs: Any, labels: Any, others: Any) -> Any:
        return self.known(inputs, labels)

    def fixmatch(self, inputs: Any, labels: Any, others: Any) -> Any:
        torch = self.torch
        with torch.no_grad():
            sure, guesses = self.net(self.weak(others)).softmax(1).max(1)
        taught = torch.nn.functional.cross_entropy(self.net(self.strong(others)), guesses, reduction="none")
        mask = (sure >= self.config.confidence).float()
        return self.known(inputs, labels) + (self.config.weight or 0.0) * (mask * taught).mean()

    def vat(self, inputs: Any, labels: Any, others: Any) -> Any:
        torch, log_softmax = self.torch, self.torch.nn.functional.log_softmax
        seen = self.weak(others)
        logits = self.net(seen)
        logs = log_softmax(logits, 1)
        fixed = logs.detach()

        def gap(changed: Any) -> Any:
            return (fixed.exp() * (fixed - log_softmax(self.net(changed), 1))).sum(1)

        def unit(way: Any) -> Any:
            return way / (way.square().sum((1, 2, 3), keepdim=True).sqrt() + 1e-12)

        way = unit(torch.randn_like(seen)).requires_grad_()
        (turn,) = torch.autograd.grad(gap(seen + 1e-2 * way).sum(), way)
        far = gap(seen + self.config.radius * self.scale * unit(turn)).mean()
        entropy = -(logs.exp() * logs).sum(1).mean()
        weight = self.config.weight or 0.0
        return self.known(inputs, labels) + weight * (far + self.config.entropy * entropy)

    def gan(self, inputs: Any, labels: Any, others: Any) -> Any:
        torch, smoothing = self.torch, self.config.label_smoothing or 0.0
        softplus, features, last = torch.nn.functional.softplus, self.net[:-1], self.net[-1]
        made = self.generator(torch.randn(len(others), self.config.latent)).reshape(-1, 1, 28, 28)
        counts = len(inputs), len(others), len(made)
        shown = torch.cat([self.weak(inputs), self.weak(others), made.detach()])
        hidden = features(shown)
        known, real, false = last(hidden).split(counts)
        told = torch.nn.functional.cross_entropy(known, labels, label_smoothing=smoothing)
        telling = softplus(-real.logsumexp(1)).mean() + softplus(false.logsumexp(1)).mean()
        fixed = {name: leaf.detach() for name, leaf in features.named_parameters()}
        drawn = torch.func.functional_call(features, fixed, (made,)).mean(0)
        matching = (drawn - hidden.split(counts)[1].detach().mean(0)).square().mean()
        return told + (self.config.weight or 0.0) * 0.5 * telling + matching


def torch_ways(method: str) -> list[Way]:
    try:
        import torch
    except ImportError:
        return []

    def eager(threads: int, channels_last: bool) -> Way:
        student = Torch(method, channels_last)

        def run() -> int:
            torch.set_num_threads(threads)
            for _ in range(STEPS):
                student.step()
            return STEPS * per_step(student.config)

        run()
        return way(f"torch_{threads}_threads{'_channels_last' if channels_last else ''}", run)

    return [eager(devices.cores(), False), eager(devices.cores(), True), eager(1, False)]


def compare(method: str, rounds: int, seconds: float, forms: bool) -> dict[str, Any]:
    """Ours and PyTorch in turns."""
    ways = [ours(method), *torch_ways(method)]
    ways += [ours(method, Form(name)) for name in models.CONVOLUTIONS] if forms else []
    found: dict[str, list[float]] = {one.name: [] for one in ways}
    spent: dict[str, list[float]] = {one.name: [] for one in ways}
    images = per_step(config_of(method))
    for turn in range(rounds):
        for one in ways if turn % 2 == 0 else ways[::-1]:
            began, used = time.perf_counter(), time.process_time()
            pace = one.pace(seconds)
            steps = pace * (time.perf_counter() - began) / images
            found[one.name].append(pace)
            spent[one.name].append(1000 * (time.process_time() - used) / steps)
    rivals = [name for name in found if name.startswith("torch")]
    ratios = (
        [mine / max(found[name][i] for name in rivals) for i, mine in enumerate(found["ours"])]
        if rivals
        else []
    )
    plain = [name for name in rivals if name.endswith("channels_last")]
    laid = [mine / found[name][turn] for name in plain for turn, mine in enumerate(found["ours"])]
    return {
        "method": method, "net": "cnn", "rounds": rounds, "images_per_step": images,
        "images_per_second": {name: round(statistics.median(paces), 1) for name, paces in found.items()},
        "cpu_ms_per_step": {name: round(statistics.median(each), 2) for name, each in spent.items()},
        "ratio_to_best_torch": round(statistics.median(ratios), 3) if ratios else None,
        "ratio_to_channels_last": round(statistics.median(laid), 3) if laid else None,
        "ratios": [round(ratio, 3) for ratio in ratios],
        "compile_seconds": round(ways[0].compile_seconds, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--forms", action="store_true", help="also try each form of convolution")
    parser.add_argument("--dry", action="store_true", help="print only")
    measurement.add_busy(parser)
    chosen = parser.parse_args()
    load = measurement.load(chosen.busy)
    command = f"python benchmarks/student.py --rounds {chosen.rounds} --seconds {chosen.seconds:g}"
    for method in chosen.methods:
        with devices.kept_memory():  # as in training; PyTorch has the good of it too
            found = compare(method, chosen.rounds, chosen.seconds, chosen.forms)
        about = {**machine(), "device": jax.local_devices()[0].device_kind}
        line = {**about, "load": load, "command": f"{command} --methods {method}", **found}
        print(json.dumps(line), flush=True) if chosen.dry else add("student", line)


if __name__ == "__main__":
    main()
