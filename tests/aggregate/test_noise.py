"""ChaCha20 against its standard, keys that fail closed, and samplers against their laws."""

import math
import secrets

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from scipy import stats

from pate_jax.aggregate import argmax, chacha, noise
from pate_jax.errors import PateError
from pate_jax.mechanisms import Noise, laws
from pate_jax.system import devices

WORDS = jnp.asarray(np.frombuffer(bytes(range(32)), np.uint32))


def kolmogorov(values, law) -> float:
    """The p-value of Kolmogorov's test, by its limit law: close for thousands of values, and far quicker."""
    return stats.kstest(values, law.cdf, method="asymp").pvalue


def private(words=WORDS):
    return jax.random.wrap_key_data(words, impl=chacha.PRIVATE)


def numbers(*texts: str) -> list:
    return list(np.frombuffer(bytes.fromhex("".join(texts)), np.uint32))


# RFC 8439, section 2.3.2 and appendix A.1: key, nonce, counter, block
VECTORS = [
    (
        bytes(range(32)).hex(),
        "000000090000004a00000000",
        1,
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
    ),
    (
        "00" * 32,
        "00" * 12,
        0,
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
    ),
    (
        "00" * 32,
        "00" * 12,
        1,
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
    ),
    (
        "00" * 31 + "01",
        "00" * 12,
        1,
        "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
        "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0",
    ),
    (
        "00" * 32,
        "00" * 11 + "02",
        0,
        "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
        "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d",
    ),
]


@pytest.mark.parametrize("key, nonce, counter, expected", VECTORS)
def test_blocks_match_the_standard(key, nonce, counter, expected):
    counters = jnp.asarray([counter, 77], jnp.uint32)
    blocks = chacha.block(jnp.asarray(numbers(key)), counters, numbers(nonce))
    assert np.asarray(blocks)[:, 0].tobytes().hex() == expected
    in_line = jnp.stack(jax.jit(chacha.block_in_line)(jnp.asarray(numbers(key)), counters, numbers(nonce)))
    assert (in_line == blocks).all()


def plain_block(words: list[int]) -> list[int]:
    """ChaCha20 on Python integers, written from the standard's text."""
    state = list(words)

    def add_xor_turn(a, b, d, places):
        state[a] = (state[a] + state[b]) % 2**32
        mixed = state[d] ^ state[a]
        state[d] = (mixed << places | mixed >> (32 - places)) % 2**32

    for _ in range(10):
        for a, b, c, d in [(i, 4 + i, 8 + i, 12 + i) for i in range(4)] + [
            (i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4) for i in range(4)
        ]:
            add_xor_turn(a, b, d, 16)
            add_xor_turn(c, d, b, 12)
            add_xor_turn(a, b, d, 8)
            add_xor_turn(c, d, b, 7)
    return [(first + last) % 2**32 for first, last in zip(words, state, strict=True)]


def test_blocks_match_plain_integers_for_any_key_counter_and_nonce():
    words = np.random.default_rng(1).integers(0, 1 << 32, (5, 12), dtype=np.uint32)
    for row in words:
        key, counter, nonce = jnp.asarray(row[:8]), row[8], row[9:]
        ours = chacha.block(key, jnp.asarray([counter, counter + np.uint32(1)]), list(nonce))
        constants = np.frombuffer(b"expand 32-byte k", np.uint32).tolist()
        assert ours[:, 0].tolist() == plain_block([*constants, *row.tolist()])


def test_few_blocks_are_computed_in_another_form_and_are_the_same():
    few, many = (
        chacha.block(WORDS, jnp.arange(count, dtype=jnp.uint32), (1, 2, 3))
        for count in (chacha._FEW, chacha._FEW + 1)
    )
    assert (few == many[:, :-1]).all()


def test_bits_are_the_blocks_of_their_domain_word_by_word():
    blocks = chacha.block(WORDS, jnp.arange(3, dtype=jnp.uint32), (1, 32, 0))
    assert (jax.random.bits(private(), (5, 8)).reshape(-1) == blocks.reshape(-1)[:40]).all()


@pytest.mark.parametrize("kind", [chacha.PRIVATE, chacha.SEEDED])
def test_lanes_are_blocks_of_a_domain_of_their_own_in_either_form(kind):
    key = jax.random.wrap_key_data(WORDS, impl=kind)
    stored = jnp.stack(noise.lanes(key, 7, 9, in_line=False))
    assert (stored == jnp.stack(noise.lanes(key, np.uint32(7), 9, in_line=True))).all()
    domain = 5 if kind is chacha.PRIVATE else 0x105
    assert (stored == chacha.block(WORDS, 7 + jnp.arange(9, dtype=jnp.uint32), (domain, 0, 0))).all()


def test_lanes_reach_the_last_block_of_a_key_and_no_further():
    """Blocks 2^32 - 3 .. 2^32 - 1, so words beyond 2^35, against plain integers; a counter never wraps."""
    lanes = np.asarray(jnp.stack(noise.lanes(private(), np.uint32(2**32 - 3), 3, in_line=True)))
    constants = np.frombuffer(b"expand 32-byte k", np.uint32).tolist()
    for place in range(3):
        expected = plain_block([*constants, *WORDS.tolist(), 2**32 - 3 + place, 5, 0, 0])
        assert lanes[:, place].tolist() == expected
    argmax.chance("gaussian", private(), (1 << 31, 20), stored=False)  # exactly 2^32 blocks
    for queries, classes, family in (((1 << 31) + 1, 20, "gaussian"), (1 << 31, 21, "laplace")):
        with pytest.raises(PateError, match="exceed one key's blocks"):
            argmax.chance(family, private(), (queries, classes), stored=False)
    with pytest.raises(PateError, match="exceed ChaCha20's counter"):
        jax.eval_shape(lambda words: chacha._words(words, (1 << 36) + 1, 1), WORDS)


@pytest.mark.long
def test_no_two_blocks_of_an_answer_have_one_counter(monkeypatch):
    """Groups, settings, splits and both kinds of key: every (key, nonce, counter) is asked for once."""
    asked = []

    def spy(key, counter, nonce):
        asked.extend((*np.asarray(key).tolist(), int(number), *map(int, nonce)) for number in counter)
        return (counter,) * 16  # stands for the words, which play no part here

    monkeypatch.setattr(chacha, "block_in_line", spy)
    counts = jnp.full((12, 5), 2)
    with jax.disable_jit():
        for key in (private(), jax.random.wrap_key_data(WORDS, impl=chacha.SEEDED)):
            chances = [argmax.chance("gaussian", own, (5, 12), stored=False) for own in jax.random.split(key)]
            for one in chances:
                argmax.labels(noise.source(Noise("gaussian", 3.0)), counts, one)
    assert len(asked) == len(set(asked)) == 2 * 2 * 2 * 5


@pytest.mark.parametrize("family", ["gaussian", "laplace", "gumbel", "exponential"])
def test_noise_made_in_registers_follows_its_law_in_every_slot(family):
    """An odd number of blocks from the middle of a stream; slots of one block are independent."""
    make = jax.jit(lambda words: noise.from_words(family, tuple(words)))
    slots = np.asarray(jnp.stack(make(noise.lanes(private(), np.uint32(12_345), 20_011, in_line=False))))
    assert len(slots) == noise.values_in(family)
    for values in slots:
        assert kolmogorov(values, CONTINUOUS[family]()) > 1e-4
        for scale in (2 / 3, 3 / 2):
            assert kolmogorov(values, CONTINUOUS[family](scale=scale)) < 1e-9
    for parts in (slots, slots**2):
        between = np.corrcoef(parts)[np.triu_indices(len(parts), 1)]
        assert np.abs(between).max() < 5 / np.sqrt(slots.shape[1])


@pytest.mark.long
def test_uses_of_a_key_share_no_block():
    """Bits of each width, children of split and of fold_in, for both kinds of key: all words differ."""
    seen = []
    for kind in (chacha.PRIVATE, chacha.SEEDED):
        for use in (
            lambda key: jax.random.bits(key, (64,)),
            lambda key: jax.random.key_data(jax.random.split(key, 8)),
            *(lambda key, n=n: jax.random.key_data(jax.random.fold_in(key, n)) for n in range(8)),
            lambda key: jnp.stack(noise.lanes(key, np.uint32(0), 8, in_line=False)),
            lambda key: jax.lax.bitcast_convert_type(jax.random.bits(key, (64, 4), jnp.uint8), jnp.uint32),
            lambda key: jax.lax.bitcast_convert_type(jax.random.bits(key, (64, 2), jnp.uint16), jnp.uint32),
        ):
            seen.extend(np.asarray(use(jax.random.wrap_key_data(WORDS, impl=kind))).reshape(-1).tolist())
    assert len(set(seen)) == len(seen) == 2 * (64 + 64 + 64 + 128 + 64 + 64)


@pytest.mark.parametrize("width", [8, 16, 32])
def test_every_bit_of_every_width_is_fair(width):
    bits = np.asarray(jax.random.bits(private(), (50001,), jnp.dtype(f"uint{width}")))
    assert bits.shape == (50001,) and bits.dtype.itemsize * 8 == width
    ones = [(bits >> place & 1).sum() for place in range(width)]
    assert all(stats.binomtest(int(one), bits.size, 0.5).pvalue > 1e-6 for one in ones)
    assert len(np.unique(bits)) > 0.9 * min(bits.size, 2**width) * (1 - np.exp(-bits.size / 2**width))


def test_64_bits_where_they_are_enabled():
    with jax.enable_x64(True):
        bits = np.asarray(jax.random.bits(private(), (1000,), jnp.uint64))
        again = noise.seeded_key(5)
        assert jax.random.key_data(again).dtype == jnp.uint32
    assert bits.dtype == np.uint64
    assert all(
        stats.binomtest(int((bits >> np.uint64(i) & np.uint64(1)).sum()), 1000).pvalue > 1e-6
        for i in range(64)
    )


@pytest.mark.parametrize("count", [16 * 8192 + 1, 3 * 16 * 8192 - 5])
def test_long_streams_are_the_same_on_every_platform_and_never_repeat(count):
    words = np.asarray(jax.random.bits(private(), (count,)))
    groups = math.ceil(count / (16 * 8192))
    size = math.ceil(math.ceil(count / 16) / groups)
    other = np.asarray(chacha._at_once(groups, size, (1, 32, 0), WORDS)).reshape(-1)[:count]
    assert (words == other).all()
    pairs = words[: count // 2 * 2].view(np.uint64)
    assert len(np.unique(pairs)) == len(pairs)


def test_keys_work_under_jit_vmap_and_split():
    keys = jax.random.split(private(), (2, 3))
    assert keys.shape == (2, 3) and noise.is_private(keys)
    together = jax.jit(jax.vmap(jax.vmap(lambda key: jax.random.bits(key, (5,)))))(
        jax.random.split(private(), (2, 3))
    )
    alone = jnp.stack([jax.random.bits(key, (5,)) for key in keys.reshape(-1)])
    assert (together.reshape(-1, 5) == alone).all()
    assert len(np.unique(np.asarray(jax.random.key_data(keys)))) == 48
    folded = jax.vmap(lambda n: jax.random.key_data(jax.random.fold_in(private(), n)))(jnp.arange(4))
    assert (folded[3] == jax.random.key_data(jax.random.fold_in(private(), 3))).all()


def test_reusing_a_key_is_an_error():
    key = noise.seeded_key(0)
    noise.draw(Noise("discrete_gaussian", 2.0), key, (3,))
    with pytest.raises(jax.errors.KeyReuseError):
        noise.draw(Noise("discrete_gaussian", 2.0), key, (3,))


def test_private_keys_come_from_entropy_alone(monkeypatch):
    asked = []
    real = secrets.token_bytes
    monkeypatch.setattr(secrets, "token_bytes", lambda size: asked.append(size) or real(size))
    first, second = noise.fresh_key(), noise.fresh_key()
    assert asked == [32, 32]
    assert not (jax.random.key_data(first) == jax.random.key_data(second)).any()
    with pytest.raises(PateError, match="cannot be made from a number"):
        jax.random.key(0, impl=chacha.PRIVATE)


def over_a_mesh(function):
    mesh = jax.make_mesh((2,), ("part",), axis_types=(jax.sharding.AxisType.Auto,))
    return jax.shard_map(function, mesh=mesh, in_specs=P("part"), out_specs=P("part"))


TRANSFORMS = {
    "jit": jax.jit,
    "vmap": jax.vmap,
    "vmap within jit": lambda function: jax.jit(jax.vmap(function)),
    "grad": lambda function: jax.grad(lambda given: function(given).sum()),
    "scan": lambda function: lambda given: jax.lax.scan(lambda none, one: (none, function(one)), 0, given),
    "map": lambda function: lambda given: jax.lax.map(function, given),
    "shard_map": over_a_mesh,
    "shard_map within jit": lambda function: jax.jit(over_a_mesh(function)),
    "eval_shape": lambda function: lambda given: jax.eval_shape(function, given),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_no_key_is_made_where_jax_traces(transform):
    """It would be a constant of the program: two tables less each other would be the votes that changed."""

    def noisy(table):
        return table + noise.draw(Noise("gaussian", 40.0), noise.fresh_key(), table.shape)

    with pytest.raises(PateError, match="make the key outside, and pass it as an argument"):
        TRANSFORMS[transform](noisy)(jnp.zeros((4, 3)))
    assert noise.is_private(noise.fresh_key())


def test_a_key_made_on_the_host_while_a_program_runs_is_no_constant():
    def bits(_):
        return np.asarray(jax.random.key_data(noise.fresh_key()))

    words = jax.ShapeDtypeStruct((chacha.KEY_WORDS,), jnp.uint32)
    program = jax.jit(lambda given: jax.pure_callback(bits, words, given))
    assert not (program(0) == program(0)).any()


def test_a_key_among_several_processes_is_shared_or_not(monkeypatch):
    monkeypatch.setattr(devices, "processes", lambda: 2)
    with pytest.raises(PateError, match="2 processes needs shared=True, called by all together"):
        noise.fresh_key()
    monkeypatch.setattr(devices, "from_first", lambda entropy: bytes(range(32)))
    assert (jax.random.key_data(noise.fresh_key(shared=True)) == WORDS).all()
    assert (jax.random.key_data(noise.fresh_key(shared=False)) != WORDS).any()


@pytest.mark.parametrize("broken", [OSError, NotImplementedError])
def test_without_entropy_there_is_no_key(monkeypatch, broken):
    def refuse(size):
        raise broken

    monkeypatch.setattr(secrets, "token_bytes", refuse)
    with pytest.raises(PateError, match="no entropy"):
        noise.fresh_key()


@pytest.mark.parametrize("entropy", [bytes(32), b"short" * 4])
def test_entropy_that_cannot_be_is_refused(monkeypatch, entropy):
    monkeypatch.setattr(secrets, "token_bytes", lambda size: entropy)
    with pytest.raises(PateError, match="instead of 32"):
        noise.fresh_key()


def test_seeded_keys_are_reproducible_and_never_private():
    key = noise.seeded_key(12)
    assert (jax.random.key_data(key) == jax.random.key_data(noise.seeded_key(12))).all()
    assert not noise.is_private(key) and not noise.is_private(jax.random.split(key)[0])
    assert not noise.is_private(jax.random.key(12)) and not noise.is_private(None)
    assert noise.is_private(jax.random.fold_in(private(), 1))
    traced = []
    jax.jit(lambda key: traced.append(noise.is_private(key)))(private())
    assert traced == [True]


@pytest.mark.parametrize("seed", [-1, 1 << 32, 1.5, True, "7"])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(PateError, match="seed="):
        noise.seeded_key(seed)


def test_discrete_draws_are_the_search_of_the_table():
    """Against bisection over Python integers, for words that include both neighbours of every entry."""
    law = laws.table(Noise("discrete_laplace", 0.4))
    ends = [int.from_bytes(row.astype(">u4").tobytes(), "big") for row in law.words]
    near = {end + step for end in ends[: law.size] for step in (-1, 0, 1)}
    targets = sorted(word for word in near if 0 <= word < 1 << 128)
    words = np.array(
        [[word >> shift & 0xFFFFFFFF for word in targets] for shift in (96, 64, 32, 0)], np.uint32
    )
    found = noise._search(jnp.asarray(law.words), tuple(jnp.asarray(words)))
    expected = [next(i for i, end in enumerate(ends) if end >= word) for word in targets]
    assert found.tolist() == expected and max(expected) < law.size


def test_padding_a_table_changes_no_draw():
    law = Noise("discrete_gaussian", 3.0)
    padded = noise.source(law, length=4096)
    assert (
        noise.draw(law, noise.seeded_key(1), (999,)) == noise.draw(padded, noise.seeded_key(1), (999,))
    ).all()


def chi_square(values: np.ndarray, ideal: dict[int, float]) -> float:
    """The p-value of integer draws under a law, cells of fewer than 10 expected draws put together."""
    size = values.size
    inner = sorted(x for x, chance in ideal.items() if chance * size >= 10)
    counts = np.bincount(
        np.clip(values, inner[0] - 1, inner[-1] + 1) - inner[0] + 1, minlength=len(inner) + 2
    )
    chances = np.array([ideal[x] for x in inner])
    observed = np.append(counts[1:-1], counts[0] + counts[-1])
    expected = np.append(chances, 1 - chances.sum()) * size
    keep = expected > 1e-3
    statistic = ((observed - expected)[keep] ** 2 / expected[keep]).sum()
    return float(stats.chi2.sf(statistic, keep.sum() - 1))


def discrete_law(noise_: Noise) -> dict[int, float]:
    reach = int(40 * noise_.scale) + 3
    x = np.arange(-reach, reach + 1)
    power = x**2 / (2 * noise_.scale**2) if noise_.family == "discrete_gaussian" else np.abs(x) / noise_.scale
    weights = np.exp(-power)
    return dict(zip(x.tolist(), (weights / weights.sum()).tolist(), strict=True))


def assert_follows_only_its_own_law(noise_: Noise, values: np.ndarray, off: float) -> None:
    assert chi_square(values, discrete_law(noise_)) > 1e-4
    for factor in (1 - off, 1 + off):
        assert chi_square(values, discrete_law(noise_._replace(scale=noise_.scale * factor))) < 1e-9


@pytest.mark.parametrize(
    "noise_",
    [
        Noise("discrete_gaussian", 0.6),
        Noise("discrete_gaussian", 40.0),
        Noise("discrete_laplace", 0.6),
        Noise("discrete_laplace", 20.0),
    ],
    ids=str,
)
def test_discrete_draws_follow_their_law_and_no_scale_beside_it(noise_):
    values = np.asarray(noise.draw(noise_, noise.seeded_key(11), (300, 1000))).reshape(-1)
    assert values.dtype == np.int32
    assert_follows_only_its_own_law(noise_, values, off=0.03)


@pytest.mark.long
@pytest.mark.parametrize(
    "noise_", [Noise("discrete_gaussian", 40.0), Noise("discrete_laplace", 20.0)], ids=str
)
def test_ten_million_discrete_draws_follow_their_law(noise_):
    """The scale is pinned to half a per cent on either side."""
    values = np.asarray(noise.draw(noise_, noise.seeded_key(2024), (10_000_000,)))
    assert_follows_only_its_own_law(noise_, values, off=0.005)


CONTINUOUS = {
    "gaussian": stats.norm,
    "laplace": stats.laplace,
    "gumbel": stats.gumbel_r,
    "exponential": stats.expon,
}


@pytest.mark.parametrize("family", CONTINUOUS)
def test_continuous_draws_follow_their_law_and_no_scale_beside_it(family):
    values = np.asarray(noise.draw(Noise(family, 5.0), noise.seeded_key(3), (500, 401))).reshape(-1)
    assert values.dtype == np.float32
    assert kolmogorov(values, CONTINUOUS[family](scale=5.0)) > 1e-3
    for scale in (4.8, 5.2):
        assert kolmogorov(values, CONTINUOUS[family](scale=scale)) < 1e-6


def test_gaussian_pairs_are_independent():
    values = np.asarray(noise.draw(Noise("gaussian", 1.0), noise.seeded_key(4), (2, 100_000)))
    for power in (1, 2):
        left, right = values**power
        assert stats.pearsonr(left, right).pvalue > 1e-3
    assert stats.pearsonr(*(values[0] * values[1], values[0] ** 2 - values[1] ** 2)).pvalue > 1e-3


EXTREME = jnp.array([0, 1 << 31, 0x7FFFFFFF, 0xFFFFFFFF], jnp.uint32)


def test_tails_reach_as_far_as_the_slack_claims():
    """The extreme words draw values beyond which the ideal law has less than the stated mass."""
    low = jnp.array([0, 0, 0xFFFFFFFF, 0xFFFFFFFF], jnp.uint32)
    size = np.asarray(noise._minus_log(EXTREME, low), np.float64)
    claimed = laws.distance(Noise("exponential", 1.0))
    assert np.exp(-size.max()) + -np.expm1(-size.min()) < claimed
    assert 2 * stats.norm.sf(np.sqrt(2 * size.max())) < claimed
    _, half = noise._coin_and_half(EXTREME, low)
    assert 2 * float(half.min()) < claimed
    assert np.isfinite(size).all() and (size > 0).all()


def test_logarithms_keep_their_relative_precision_at_both_ends():
    high = np.concatenate([np.uint32(2) ** np.arange(31, dtype=np.uint32) for _ in range(2)])
    high[31:] |= np.uint32(1 << 31)
    low = np.full(high.shape, 12345, np.uint32)
    half = ((high & np.uint32(0x7FFFFFFF)).astype(np.float64) * 2**32 + low + 0.5) * 2.0**-64
    exact = np.where(high >> 31 == 1, -np.log(half), -np.log1p(-half))
    ours = np.asarray(noise._minus_log(jnp.asarray(high), jnp.asarray(low)), np.float64)
    assert np.abs(ours / exact - 1).max() < 1e-6


def test_cosines_are_right_to_float32():
    turn = np.random.default_rng(0).integers(0, 1 << 32, 100_000, dtype=np.uint32)
    exact = np.cos(turn * (2 * np.pi / 2**32))
    assert np.abs(np.asarray(noise._cosine(jnp.asarray(turn)), np.float64) - exact).max() < 2e-7


@pytest.mark.parametrize("key", [None, 0, np.zeros(2, np.uint32), jax.random.PRNGKey(0)])
def test_a_non_key_is_named(key):
    with pytest.raises(PateError, match="is not a typed JAX key"):
        noise.check_key(key)


def test_many_keys_are_not_one():
    with pytest.raises(PateError, match=r"shape \(3,\)"):
        noise.check_key(jax.random.split(noise.seeded_key(0), 3))
