"""What t parties see of a vote has one law, whatever the others' votes are: exactly, in small fields."""

import asyncio
import dataclasses
import inspect
import itertools
from collections import Counter

import numpy as np
import pytest
import small_votes

from pate_jax.parties import engine, ranges, shamir
from pate_jax.parties.shamir import MERSENNE, Mersenne, Prime


class Told(Prime):
    """A field whose random numbers are given."""

    def __init__(self, modulus, numbers):
        super().__init__(modulus)
        self.numbers = list(numbers)

    def uniform(self, *shape):
        return np.array([self.numbers.pop(0) for _ in range(int(np.prod(shape)))], object).reshape(shape)


@pytest.mark.parametrize(("t", "parties", "modulus"), [(1, 3, 5), (2, 5, 7)])
def test_t_shares_have_one_law_and_one_more_gives_the_secret(t, parties, modulus):
    laws = {}
    for secret in range(modulus):
        for numbers in itertools.product(range(modulus), repeat=t):
            shares = [
                int(one[0]) for one in Told(modulus, numbers).split(np.array([secret], object), t, parties)
            ]
            for seen in itertools.combinations(range(parties), t):
                laws.setdefault((seen, secret), Counter())[tuple(shares[i] for i in seen)] += 1
            for enough in itertools.combinations(range(parties), t + 1):
                assert at_zero([i + 1 for i in enough], [shares[i] for i in enough], modulus) == secret
    for seen in itertools.combinations(range(parties), t):
        assert len({tuple(sorted(laws[seen, secret].items())) for secret in range(modulus)}) == 1


def at_zero(points, values, modulus):
    """Lagrange's interpolation at 0."""
    total = 0
    for i, value in zip(points, values, strict=True):
        for j in points:
            if j != i:
                value = value * j * pow(j - i, -1, modulus)
        total += value
    return total % modulus


def test_the_view_of_one_party_has_the_law_of_the_opened_sum_alone():
    """All randomness of a whole secure sum is enumerated: sharing, the check and opening."""
    views = {pair: view(5, *pair) for pair in [(0, 1), (1, 0), (1, 1)]}
    assert views[0, 1] == views[1, 0]
    assert not views[0, 1] & views[1, 1]


def view(modulus, first, second):
    """How often the third of three parties sees what, for the digits that the first two have."""
    numbers = np.array([*itertools.product(range(modulus), repeat=6)], object).T
    field = Told(modulus, np.concatenate(numbers[:2]))
    digits = [field.split(np.full(numbers.shape[1], one, object), 1, 3) for one in (first, second)]
    seen = [digits[0][2], digits[1][2]]
    for party in range(2):  # a digit's check and a fresh sharing of zero, of degree 2, at every point
        a, b = numbers[2 + 2 * party : 4 + 2 * party]
        checks = [one * (one - 1) + a * x + b * x * x for x, one in enumerate(digits[party], 1)]
        seen += [check % modulus for check in checks]
    seen += [(digits[0][i] + digits[1][i]) % modulus for i in range(3)]
    return Counter(zip(*(one.tolist() for one in seen), strict=True))


@pytest.mark.parametrize("field", [Mersenne(), Prime(2**89 - 1)], ids=["words", "integers"])
def test_arithmetic_is_that_of_the_integers(field):
    edge = [0, 1, 2, 2**30, 2**31 - 1, 2**31, 2**60, field.modulus - 2, field.modulus - 1]
    first, second = (np.array(one, object) for one in zip(*itertools.product(edge, repeat=2), strict=True))
    kind = np.uint64 if isinstance(field, Mersenne) else object
    added = field.add(first.astype(kind), second.astype(kind))
    times = field.times(first.astype(kind), second.astype(kind))
    assert added.tolist() == ((first + second) % field.modulus).tolist()
    assert times.tolist() == ((first * second) % field.modulus).tolist()
    assert field.total(times) == sum(times.tolist()) % field.modulus


@pytest.mark.parametrize("t", [1, 2])
@pytest.mark.parametrize("voters", ["teachers", "neighbours", "sums"])
def test_the_check_is_zero_if_and_only_if_a_party_keeps_to_its_range(t, voters):
    agreement = small_votes.agree(queries=3, classes=3, votes=(5, 6, 8, 4, 3), voters=voters, colluders=t)
    party, own = agreement.parties[1], small_votes.draw(agreement)["south"]
    honest = ranges.digits(agreement, party, *own, None).astype(np.int64)
    assert opened(agreement, party, honest) == 0
    for place in (4, -1):  # of a count and of noise
        broken = honest.copy()
        broken[place] += 2
        assert opened(agreement, party, broken) != 0
    moved = honest.copy()
    moved[0] = 1 - moved[0]  # still a digit, and one vote more or fewer
    assert (opened(agreement, party, moved) == 0) == (voters == "sums")


def opened(agreement, party, digits):
    """The sum that the check opens, without any network."""
    field, parties, t = Mersenne(), len(agreement.parties), agreement.colluders
    shares = field.split(field.of(digits), t, parties)
    sums = [ranges.combination(field, agreement, party, one, b"a seed") for one in shares]
    return at_zero(range(1, 2 * t + 2), sums[: 2 * t + 1], MERSENNE)


def test_numbers_out_of_range_are_refused_before_they_are_sent():
    agreement = small_votes.agree()
    party, (counts, noise) = agreement.parties[0], small_votes.draw(agreement)["north"]
    with pytest.raises(small_votes.PateError, match=r"query 2 has the counts \[.*5 votes on each"):
        ranges.digits(agreement, party, counts + (np.arange(7) == 2)[:, None], noise, None)
    with pytest.raises(small_votes.PateError, match=r"noise from .* must be from -64 to 63"):
        ranges.digits(agreement, party, counts, noise - 100, None)
    with pytest.raises(small_votes.PateError, match=r"counts of shape \(6, 4\)"):
        ranges.digits(agreement, party, counts[:6], noise[:6], None)
    with pytest.raises(small_votes.PateError, match="an agreement that has a threshold"):
        ranges.digits(agreement, party, counts, noise, noise[:, 0])


class Opening:
    """One party of three in a test for zero, without a network: it keeps what it would open."""

    threshold = 1

    def __init__(self, party, numbers, keys):
        module = engine.library()
        self.parties, self.pid, self.field = [None] * 3, party, module.finfields.GF(MERSENNE)
        self.numbers, self.SecureArray = numbers, module.sectypes.SecureArray
        self.functions = {one: module.thresha.PRF(key, MERSENNE) for one, key in keys.items() if party in one}

    async def returnType(self, *_):
        return None

    async def gather(self, value):
        return value

    def prfs(self, _):
        return self.functions

    def _prss_uci(self):
        return b"1"

    def _np_randoms(self, field, _):
        return field.array(self.numbers)

    async def output(self, value, threshold):
        assert threshold == 2
        self.opened = value.value.tolist()
        return value

    def zeros(self, field, count):
        return engine._kind().zeros(self, field, count)


def test_for_zero_shows_whether_a_number_is_zero_and_nothing_else():
    """One party tries to factor what all open, with its own shares: it would know a number up to two values.

    This is what MPyC 0.11 allows for large moduli, see `np_is_zero_public` in engine.py.
    """
    generator, count = np.random.default_rng(5), 40
    keys = {one: generator.bytes(16) for one in itertools.combinations(range(3), 2)}
    hidden = generator.integers(1, 2**60, count).astype(object)
    lines = [generator.integers(0, 2**60, count).astype(object) for _ in range(3)]
    shares = [(hidden + lines[0] * x) % MERSENNE for x in (1, 2, 3)]
    randoms = [(lines[1] + lines[2] * x) % MERSENNE for x in (1, 2, 3)]
    raw = inspect.unwrap(engine._kind().np_is_zero_public)
    found = []
    for party in range(3):
        place = Opening(party, randoms[party], keys)
        asyncio.run(raw(place, place.field.array(shares[party])))
        found.append(np.array(place.opened, object))
    product = [hidden * lines[1] % MERSENNE]  # what may be seen: the product at 0
    at = [at_zero([1, 2, 3], [one[k] for one in found], MERSENNE) for k in range(count)]
    assert at == product[0].tolist()
    root = (-hidden * np.array([pow(int(one), -1, MERSENNE) for one in lines[0]], object)) % MERSENNE
    values = [value(found, int(root[k]), k) for k in range(count)]
    assert sum(one == 0 for one in values) == 0  # the root of the hidden line is no root of what is opened


def value(found, point, k):
    """The opened polynomial of degree 2 at a point."""
    total = 0
    for i in range(3):
        part = int(found[i][k])
        for j in range(3):
            if j != i:
                part = part * (point - j - 1) * pow(i - j, -1, MERSENNE)
        total += part
    return total % MERSENNE


class Shuffling:
    """One party in a shuffle; `meet` passes the messages of a round between all of them."""

    def __init__(self, party, parties, t, keys):
        self.pid, self.parties, self.threshold = party, [None] * parties, t
        self.orders = {one: key for one, key in keys.items() if party in one}

    async def round(self, payloads):
        self.sent, self.arrived = payloads, asyncio.get_running_loop().create_future()
        return await self.arrived


async def meet(places, works):
    tasks = [asyncio.ensure_future(work) for work in works]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        if all(hasattr(place, "arrived") and not place.arrived.done() for place in places):
            for place in places:
                place.arrived.set_result([other.sent[place.pid] for other in places])
    return [task.result() for task in tasks]


@pytest.mark.parametrize(("parties", "t"), [(3, 1), (5, 2)])
def test_a_shuffle_is_one_uniform_order_that_t_parties_do_not_know(parties, t):
    prime, generator, queries = Prime(2**89 - 1), np.random.default_rng(parties), 240
    sets = [*itertools.combinations(range(parties), parties - t)]
    keys = {one: generator.bytes(32) for one in sets}
    table = np.stack([np.tile([4, 9, 9], (queries, 1)), np.tile([0, 1, 2], (queries, 1))]).astype(object)
    shares = prime.split(table.reshape(-1), t, parties)
    places = [Shuffling(party, parties, t, keys) for party in range(parties)]
    works = [ranges.shuffle(places[i], prime, shares[i].reshape(table.shape)) for i in range(parties)]
    found = asyncio.run(meet(places, works))
    points = [*range(1, t + 2)]
    flat = zip(*(one.reshape(-1).tolist() for one in found[: t + 1]), strict=True)
    opened = np.array([at_zero(points, each, prime.modulus) for each in flat]).reshape(table.shape)
    np.testing.assert_array_equal(opened[0] == 4, opened[1] == 0)
    orders = Counter(map(tuple, opened[1].tolist()))
    assert len(orders) == 6
    assert sum((number - 40) ** 2 / 40 for number in orders.values()) < 30  # once in 67,000 times
    for known in itertools.combinations(range(parties), t):
        assert any(not {*known} & {*one} for one in sets)
    assert not any(
        (one == before.reshape(table.shape)).any() for one, before in zip(found, shares, strict=True)
    )


def test_no_bytes_are_unpickled():
    assert engine.library().pickle is shamir
    for content in (b"", b"\x00", b"\x03ab", b"\xff" + bytes(255), b"cos\nsystem\n(S'true'\ntR."):
        with pytest.raises(small_votes.PateError, match="no whole numbers"):
            shamir.loads(content)


@pytest.mark.parametrize("content", [b"", bytes(15), bytes(17), b"\xff" * 16])
def test_shares_of_another_length_or_field_are_refused(content):
    with pytest.raises(small_votes.PateError, match="a message"):
        Mersenne().unpack(content, 2)


def test_the_agreement_fixes_what_is_sent():
    agreement = small_votes.agree(votes=(5, 6, 8, 3, 9), colluders=1, dropouts=1)
    assert ranges.share_scale(agreement, 4.0) == pytest.approx(4 / 3**0.5)
    assert ranges.noise_range(agreement, 4.0) == 32
    more = dataclasses.replace(agreement, colluders=1, dropouts=2)
    assert ranges.share_scale(more, 4.0) == pytest.approx(4 / 2**0.5)
