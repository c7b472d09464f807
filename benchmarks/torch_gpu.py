"""PyTorch's ways to train the teachers of benchmarks/gpu.py on the same device.

python benchmarks/torch_gpu.py cnn graph    # a process of `gpu.Rivals`
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import Any

import torch_teachers
from measurement import Way, way
from torch_teachers import BATCH, RECORDS

KINDS = ("sequential", "graph", "vmap")
TOGETHER = {"cnn": 250, "pate2017": 50, "mlp": 250}  # teachers in a vmap, as memory allows


def on_the_device() -> bool:
    """Let PyTorch compute where JAX does, as fast as it can; whether that is a GPU."""
    import torch

    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")  # as JAX computes by default
    if torch.cuda.is_available():
        torch.set_default_device("cuda")
    return bool(torch.cuda.is_available())


def ways(net: str, kind: str) -> list[Way]:
    """Teacher after teacher, or a recorded step of one, or all in a vmap; each in float32 and bfloat16."""
    gpu, found = on_the_device(), []
    for short in (False, True):
        words = "_bf16" * short
        if kind == "sequential":
            for last in (False, True)[: 1 if net == "mlp" else 2]:
                one = torch_teachers.sequential(net, 1, last)
                found.append(on_device(one, f"torch_sequential{'_channels_last' * last}{words}", short))
        elif kind == "vmap":
            one = torch_teachers.together(net, TOGETHER[net])
            found.append(on_device(one, f"torch_vmap_{TOGETHER[net]}{words}", short))
        elif gpu:
            found.append(recorded(net, short))
    return found


def on_device(one: Way, name: str, short: bool) -> Way:
    """The same in bfloat16 where asked, measured until the device has ended."""
    import torch

    kind = "cuda" if torch.cuda.is_available() else "cpu"

    def pace(seconds: float) -> float:
        with torch.autocast(kind, torch.bfloat16) if short else contextlib.nullcontext():
            one.pace(seconds / 5)
            if kind == "cuda":
                torch.cuda.synchronize()
            began, found = time.perf_counter(), one.pace(seconds)
            passed = time.perf_counter() - began
            if kind == "cuda":
                torch.cuda.synchronize()
            return found * passed / (time.perf_counter() - began)

    return Way(name, pace)


def recorded(net: str, short: bool) -> Way:
    """A step of one teacher, recorded once as a CUDA graph and replayed."""
    import torch

    model, (pictures, labels) = torch_teachers.net_of(net), torch_teachers.images()
    x, y = torch.tensor(pictures).permute(0, 3, 1, 2).float() / 255, torch.tensor(labels)
    rule = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9, nesterov=True, weight_decay=5e-4)
    own_x, own_y = x[:BATCH].clone(), y[:BATCH].clone()

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=short, cache_enabled=False):
            loss = torch.nn.functional.cross_entropy(model(own_x), own_y)
        rule.zero_grad(set_to_none=False)
        loss.backward()
        rule.step()

    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def run(_kept: Any = step) -> int:  # with the parameters, which the graph reads where they lie
        for batch in torch.randperm(RECORDS).split(BATCH):
            own_x.copy_(x[batch])
            own_y.copy_(y[batch])
            graph.replay()
        torch.cuda.synchronize()
        return RECORDS

    return way(f"torch_graph{'_bf16' * short}", run)


def main() -> None:
    net, kind = sys.argv[1:]
    ready = ways(net, kind)
    print(f"PyTorch's {kind} is ready", file=sys.stderr, flush=True)
    print(json.dumps([one.name for one in ready]), flush=True)
    for line in sys.stdin:
        place, seconds = line.split()
        print(ready[int(place)].pace(float(seconds)), flush=True)


if __name__ == "__main__":
    main()
