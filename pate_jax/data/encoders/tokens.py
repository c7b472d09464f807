"""The encoders of texts from packages: `words`, static embeddings, and `minilm`, a sentence transformer.

The packages are read and never imported, and nothing is unpickled. Embeddings of words are numbers of 16
bits, so their sum in 64 bits is exact, in whatever order it is taken. MiniLM computes each text by
itself in NumPy. So no text has part in the vector of another, not even by its last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from pate_jax.data.encoders import encoder, graphs
from pate_jax.errors import PateError, translated

_LARGEST = 16.0  # of an embedding: the sum of so many tokens is then exact
_TABLE = "embeddings.word_embeddings.weight"
TOLD = {
    "words": f"the first {encoder.MOST:,} characters of a text, split into tokens by the tokenizer of the "
    "package wordllama without marks at the ends; the mean of the tokens' embeddings; zeros for an empty "
    "text",
    "minilm": f"the first {encoder.MOST:,} characters of a text as its first 256 tokens; layers of "
    "attention; the mean of what the last one says of each token, at length one; zeros for an empty text",
}
Weights = dict[str, np.ndarray]


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
            if not encoder.blank(text):
                found[row] = encoder.of_words(self._embeddings, self._tokenizer, text)
        return found


@translated(encoder.InputError)
def words() -> Words:
    """The encoder in the installed package, or one sentence that says how to get it."""
    return of_files(*encoder.files_of("words"))


@translated(encoder.InputError)
def of_files(weights: bytes, tokens: bytes) -> Words:
    """The encoder of these files of embeddings and of a tokenizer."""
    tensors, tokenizer = encoder.weights_of(weights), encoder.tokenizer_of(tokens)
    embeddings = next(iter(tensors.values()), np.zeros(0))
    fits = len(tensors) == 1 and embeddings.ndim == 2 and len(embeddings) >= tokenizer.get_vocab_size()
    if not fits or embeddings.dtype != np.float16 or not np.abs(embeddings).max(initial=0) < _LARGEST:
        raise PateError(
            f"the encoder 'words' has embeddings {embeddings.dtype} {list(embeddings.shape)} for "
            f"{tokenizer.get_vocab_size():,} tokens, which are other than expected: {encoder.GET['words']}"
        )
    return Words(embeddings, tokenizer, encoder.digest(weights, tokens))


class MiniLM:
    """Vectors of texts."""

    def __init__(self, weights: Weights, tokenizer: Any, digest: str) -> None:
        from pate_jax.data.encoders import Known

        self.known = Known("minilm", digest, weights[_TABLE].shape[1])
        self._weights, self._tokenizer = weights, tokenizer

    def __call__(self, records: Sequence[str]) -> Float[np.ndarray, "record width"]:
        """One row of float32 for each text."""
        found = np.zeros((len(records), self.known.width), np.float32)
        for row, vector in enumerate(graphs.each(self._vector, records)):
            found[row] = vector
        return found

    @translated(encoder.InputError)
    def _vector(self, text: str) -> np.ndarray:
        if encoder.blank(text):
            return np.zeros(self.known.width, np.float32)
        return encoder.of_graph(self._weights, encoder.MINILM, self._tokenizer, text)


@translated(encoder.InputError)
def minilm() -> MiniLM:
    """The encoder in the installed package, or one sentence that says how to get it."""
    content = encoder.files_of("minilm")
    tensors = encoder.weights_of(content[0])
    tokenizer = encoder.tokenizer_of(content[1], encoder.MINILM.tokens)
    try:
        return MiniLM(tensors, tokenizer, encoder.digest(*content))
    except (KeyError, IndexError) as error:
        raise PateError(f"the encoder 'minilm' lacks the weights {error}: {encoder.GET['minilm']}") from error
