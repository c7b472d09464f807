"""PyTorch's ways to train the teachers of benchmarks/teachers.py, and to let them predict.

The strongest one on several cores is a process on each core with one thread. Such a process is this file:

    python benchmarks/torch_teachers.py cnn train channels_last    # serves `measurement.Pinned`
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
from typing import Any

import measurement
import numpy as np
from measurement import Way, pinned, way

RECORDS, BATCH = 240, 24  # of each teacher


def images(records: int = RECORDS, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (records, 28, 28, 1)).astype(np.uint8), rng.integers(0, 10, records)


def net_of(net: str) -> Any:
    from torch import nn

    if net == "mlp":
        sizes, layers = (784, 128, 64, 10), [nn.Flatten()]
        for before, after in itertools.pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
        return nn.Sequential(*layers[:-1])
    small = net == "cnn"
    (first, second), size, hidden = ((16, 32), 3, (64,)) if small else ((64, 128), 5, (384, 192))
    layers = [nn.Conv2d(1, first, size, padding="same"), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(first, second, size, padding="same"), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    wide = 49 * second
    for units in hidden:
        layers += [nn.Linear(wide, units), nn.ReLU()]
        wide = units
    return nn.Sequential(*layers, nn.Linear(wide, 10))


def sequential(net: str, threads: int, channels_last: bool) -> Way:
    import torch

    model, (inputs, labels) = net_of(net), images()
    x, y = torch.tensor(inputs).permute(0, 3, 1, 2).float() / 255, torch.tensor(labels)
    if channels_last:
        model, x = (
            model.to(memory_format=torch.channels_last),
            x.contiguous(memory_format=torch.channels_last),
        )
    rule = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9, nesterov=True, weight_decay=5e-4)

    def run() -> int:
        torch.set_num_threads(threads)
        for batch in torch.randperm(RECORDS).split(BATCH):
            rule.zero_grad()
            torch.nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            rule.step()
        return RECORDS

    run()
    layout = "channels_last" if channels_last else "contiguous"
    return way(f"torch_sequential_{threads}_threads_{layout}", run)


def together(net: str, number: int) -> Way:
    import torch
    from torch.func import functional_call, grad, stack_module_state, vmap

    made = [net_of(net) for _ in range(number)]
    params = {name: leaf.detach() for name, leaf in stack_module_state(made)[0].items()}
    moments = {name: torch.zeros_like(leaf) for name, leaf in params.items()}
    inputs, labels = images()
    x = (torch.tensor(inputs).permute(0, 3, 1, 2).float() / 255).expand(number, -1, -1, -1, -1)
    y = torch.tensor(labels).expand(number, -1)

    def loss(own, x, y):
        return torch.nn.functional.cross_entropy(functional_call(made[0], own, (x,)), y)

    gradient = vmap(grad(loss))

    def run() -> int:
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        for batch in torch.randperm(RECORDS).split(BATCH)[:2]:
            found = gradient(params, x[:, batch], y[:, batch])
            for name, leaf in params.items():
                step = found[name] + 5e-4 * leaf
                moments[name].mul_(0.9).add_(step)
                leaf.sub_(0.02 * (step + 0.9 * moments[name]))
        return 2 * BATCH * number

    run()
    return way(f"torch_vmap_{number}", run)


def ways(net: str) -> list[Way]:
    if importlib.util.find_spec("torch") is None:
        return []
    both = [False] if net == "mlp" else [False, True]
    threads = sorted({1, len(os.sched_getaffinity(0))})
    return [
        *(sequential(net, t, c) for t in threads for c in both),
        together(net, 5 if net != "mlp" else 50),
        *(alike(net, "train", c) for c in both),
        *(alike(net, "predict", c) for c in both),
    ]


def predicting(net: str, channels_last: bool) -> Way:
    """Labels of 1,000 images at a time from one net."""
    import torch

    torch.set_num_threads(1)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = net_of(net).eval().to(memory_format=layout)
    x = torch.tensor(images(1000)[0]).permute(0, 3, 1, 2).float() / 255
    x = x.contiguous(memory_format=layout)

    def run() -> int:
        with torch.inference_mode():
            for part in x.split(100 if net == "pate2017" else 250):
                model(part).argmax(1)
        return len(x)

    return way("torch_predict", run)


def alike(net: str, what: str, channels_last: bool) -> Way:
    """One process on each core that trains or predicts."""
    words = [net, what, "channels_last" if channels_last else "contiguous"]
    return pinned("_".join(["torch", *words[1:]]), [__file__, *words])


def main() -> None:
    net, what, layout = sys.argv[1:]
    last = layout == "channels_last"
    one = predicting(net, last) if what == "predict" else sequential(net, 1, last)
    measurement.serve(one.pace)


if __name__ == "__main__":
    main()
