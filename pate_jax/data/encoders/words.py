"""The encoder `words`: the mean of the static embeddings of a text's tokens, from the package `wordllama`.

The package is read and never imported. Embeddings are numbers of 16 bits, so their sum in 64 bits is exact,
in whatever order it is taken: a text has one vector, bit for bit, on every machine and in every batch.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from pate_jax import errors
from pate_jax.system.storage import read_bytes

MOST = 20_000  # characters of a text that are read
_FILES = ("weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json")
_GET = "`pip install pate-jax[text]`"
_LARGEST = 16.0  # of an embedding: the sum of so many tokens is then exact
TOLD = (
    f"the first {MOST:,} characters of a text, split into tokens by the tokenizer of the package wordllama "
    "without marks at the ends; the mean of the tokens' embeddings; zeros for an empty text"
)


class Words:
    """Vectors of texts."""

    def __init__(self, embeddings: Float[np.ndarray, "token width"], tokenizer: Any, digest: str) -> None:
        from pate_jax.data.encoders import Known

        self.known = Known("words", digest, embeddings.shape[1])
        self._embeddings, self._tokenizer = embeddings, tokenizer

    def __call__(self, records: Sequence[str]) -> Float[np.ndarray, "record width"]:
        """One row of float32 for each text."""
        found = np.zeros((len(records), self.known.width), np.float32)
        for row, text in enumerate(records):
            read = plain(text)
            tokens = self._tokenizer.encode(read, add_special_tokens=False).ids if read.strip() else []
            if tokens:
                total = self._embeddings[tokens].sum(0, dtype=np.float64)
                found[row] = total / len(tokens)
        return found


def load() -> Words:
    """The encoder in the installed package, or one sentence that says how to get it."""
    content = [read_bytes(folder() / name) for name in _FILES]
    return of_files(*content)


def of_files(weights: bytes, tokens: bytes) -> Words:
    """The encoder of these files of embeddings and of a tokenizer."""
    tensors, tokenizer = parsed("words", weights, tokens)
    embeddings = next(iter(tensors.values()))
    fits = len(tensors) == 1 and embeddings.ndim == 2 and len(embeddings) >= tokenizer.get_vocab_size()
    if not fits or embeddings.dtype != np.float16 or not np.abs(embeddings).max(initial=0) < _LARGEST:
        raise errors.PateError(
            f"the encoder 'words' has embeddings {embeddings.dtype} {list(embeddings.shape)} for "
            f"{tokenizer.get_vocab_size():,} tokens, which are other than expected: {_GET}"
        )
    return Words(embeddings, tokenizer, digest(weights, tokens))


def parsed(name: str, weights: bytes, tokens: bytes) -> tuple[dict[str, np.ndarray], Any]:
    """The tensors and the tokenizer in the files of an encoder of this name."""
    try:
        from safetensors.numpy import load as tensors
        from tokenizers import Tokenizer
    except ImportError as error:
        raise errors.PateError(
            f"the encoder {name!r} needs the packages safetensors and tokenizers: {_GET}"
        ) from error
    try:
        found = tensors(weights)
        tokenizer = Tokenizer.from_str(tokens.decode())
        tokenizer.no_truncation()
        tokenizer.no_padding()
    except Exception as error:  # what these packages raise is no common class
        raise errors.PateError(f"the files of the encoder {name!r} are damaged ({error}): {_GET}") from error
    if not found:
        raise errors.PateError(f"the files of the encoder {name!r} hold no weights: {_GET}")
    return found, tokenizer


def plain(text: str) -> str:
    """The part of a text that is read, without halves of pairs of characters.

    >>> len(plain("word " * 10_000)), plain("x" + chr(0xD83D))
    (20000, 'x?')
    """
    return text[:MOST].encode(errors="replace").decode()


def digest(*files: bytes) -> str:
    """SHA-256 over files, in four groups of hexadecimal digits, which nobody takes for a key.

    >>> digest(b"weights", b"tokens")[:33]
    '59a3bb82a57da3bb-cfc6eeeb5190edf3'
    """
    whole = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in files)).hexdigest()
    return "-".join(whole[place : place + 16] for place in range(0, len(whole), 16))


def folder() -> Path:
    """Where the package with the embeddings is installed."""
    found = importlib.util.find_spec("wordllama")
    places = [] if found is None else list(found.submodule_search_locations or ())
    if not places or not (Path(places[0]) / _FILES[0]).is_file():
        raise errors.PateError(f"the encoder 'words' is not installed: {_GET}")
    return Path(places[0])
