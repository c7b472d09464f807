"""A package like `wordllama`, so small that tests make it: words of a few letters, and their embeddings."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from pate_jax.data import encoders

VOCABULARY = ["".join(letters) for letters in itertools.product("abcde", repeat=3)]
WIDTH = 6


def install(folder: Path, patch: pytest.MonkeyPatch, seed: int = 0) -> Path:
    """Write the package into a folder and make it the one that is found."""
    tokenizers, safetensors = pytest.importorskip("tokenizers"), pytest.importorskip("safetensors.numpy")
    ids = {word: place for place, word in enumerate(["?", *VOCABULARY])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    home = folder / "wordllama"
    for name in ("weights", "tokenizers"):
        (home / name).mkdir(parents=True, exist_ok=True)
    (home / "__init__.py").write_text("raise RuntimeError('this package is read and never imported')\n")
    made.save(str(home / "tokenizers/l2_supercat_tokenizer_config.json"))
    embeddings = np.random.default_rng(seed).normal(size=(len(ids), WIDTH)).astype(np.float16)
    safetensors.save_file({"embedding.weight": embeddings}, home / "weights/l2_supercat_256.safetensors")
    found_by(folder, patch)
    return home


def found_by(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Look for packages in this folder first."""
    patch.syspath_prepend(str(folder))
    encoders.named.cache_clear()


def texts(seed: int, count: int, words: int = 8) -> list[str]:
    """Texts of random words."""
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(VOCABULARY, random.integers(3, words))) for _ in range(count)]


def gone(patch: pytest.MonkeyPatch) -> None:
    """No package of embeddings is installed."""
    patch.setattr(sys, "path", [])
    patch.delitem(sys.modules, "wordllama", raising=False)
    encoders.named.cache_clear()
