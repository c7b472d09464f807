"""ONNX files so small that tests make them, and folders of them as model hubs keep models."""

import json
from pathlib import Path

import numpy as np
import pytest
import tiny_words

WIDTH = 6


def words_folder(folder: Path, kind: str = "mean", seed: int = 0) -> tuple[Path, np.ndarray]:
    """A folder as sentence-transformers keeps it, and the numbers of each token."""
    onnx = pytest.importorskip("onnx")
    tokenizers = pytest.importorskip("tokenizers")
    ids = {word: place for place, word in enumerate(["?", *tiny_words.VOCABULARY])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    (folder / "1_Pooling").mkdir(exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    numbers = np.random.default_rng(seed).normal(size=(len(ids), WIDTH)).astype(np.float32)
    pooled = {f"pooling_mode_{name}": name.startswith(kind) for name in ("cls_token", "max_tokens")}
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooled))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 16}))
    whole = onnx.TensorProto.INT64
    inputs = [
        onnx.helper.make_tensor_value_info(name, whole, ["n", "t"])
        for name in ("input_ids", "attention_mask")
    ]
    outputs = [onnx.helper.make_tensor_value_info("last_hidden_state", 1, ["n", "t", WIDTH])]
    nodes = [
        onnx.helper.make_node("Gather", ["numbers", "input_ids"], ["seen"], axis=0),
        onnx.helper.make_node("Cast", ["attention_mask"], ["mask"], to=1),
        onnx.helper.make_node("Unsqueeze", ["mask", "last"], ["wide"]),
        onnx.helper.make_node("Mul", ["seen", "wide"], ["last_hidden_state"]),
    ]
    held = {"numbers": numbers, "last": np.array([-1], np.int64)}
    _save(folder / "onnx/model.onnx", nodes, inputs, outputs, held)
    return folder, numbers


def photos_file(path: Path, side: int | str = "side", *, random: bool = False) -> np.ndarray:
    """A graph that projects the mean colour of a photo; its numbers."""
    onnx = pytest.importorskip("onnx")
    numbers = np.random.default_rng(1).normal(size=(3, WIDTH)).astype(np.float32)
    inputs = [onnx.helper.make_tensor_value_info("pixel_values", 1, ["n", 3, side, side])]
    outputs = [onnx.helper.make_tensor_value_info("image_embeds", 1, ["n", WIDTH])]
    last = "sharp" if random else "image_embeds"
    nodes = [
        onnx.helper.make_node("ReduceMean", ["pixel_values"], ["mean"], axes=[2, 3], keepdims=0),
        onnx.helper.make_node("MatMul", ["mean", "numbers"], [last]),
    ]
    if random:
        nodes.append(onnx.helper.make_node("RandomNormalLike", ["sharp"], ["image_embeds"]))
    _save(path, nodes, inputs, outputs, {"numbers": numbers})
    return numbers


def _save(path, nodes, inputs, outputs, held):
    onnx = pytest.importorskip("onnx")
    tensors = [onnx.numpy_helper.from_array(value, name) for name, value in held.items()]
    graph = onnx.helper.make_graph(nodes, "tiny", inputs, outputs, tensors)
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(made.SerializeToString())
