"""How ONE linear teacher learns: by ridge regression on its own records, in closed form.

A teacher's matrix is a function of its own records and of public values, bit for bit. So nothing about
another teacher may shape its program: it has room for as many teachers, however many there are (`plan`), and
for as many records as the teacher's own count wants (`places`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from pate_jax.ensemble import feeding, programs, waves
from pate_jax.ensemble.plan import Plan
from pate_jax.ensemble.settings import TeacherConfig
from pate_jax.ensemble.teacher import News, Shard, State, Teacher
from pate_jax.ensemble.waves import Machine, Tell, Wave
from pate_jax.models import Model
from pate_jax.models.patches import product
from pate_jax.models.trees import Tree

ROUNDED = 8  # places of a linear teacher's shard come in multiples of this


def sizes(plan: Plan, teachers: int) -> list[int]:
    """The places that shards may have, from public numbers: few, because each is compiled.

    In a vmap all have the plan's length. One by one, a shard has half a deviation above the mean, which
    suffices for 69% of those that a hash cuts, or two and a half (all but one in 160), or the plan's length.
    """
    if not plan.one_by_one:
        return [plan.length]
    mean = plan.public_records / teachers
    near = [math.ceil((mean + by * math.sqrt(mean)) / ROUNDED) * ROUNDED for by in (0.5, 2.5)]
    return sorted({plan.length, *(size for size in near if size < plan.length)})


def places(counts: Int[np.ndarray, " teachers"], sizes: Sequence[int]) -> Int[np.ndarray, " teachers"]:
    """Places for the records of shards: the first of `sizes` that suffices, the last doubled until it does.

    >>> places(np.array([0, 16, 17, 41, 200]), sizes=[16, 40]).tolist()
    [16, 16, 40, 80, 320]
    """
    doubled = [*sizes]
    while doubled[-1] < counts.max(initial=0):
        doubled.append(2 * doubled[-1])
    return np.array(doubled)[np.searchsorted(doubled, counts)]


def ridge(
    inputs: Float[Array, "places entries"],
    targets: Float[Array, "places classes"],
    penalty: float,
) -> tuple[Float[Array, "entries classes"], Float[Array, "places classes"]]:
    """The matrix W that minimises `|X W - Y|^2 + penalty |W|^2`, from normal equations, and `X W`.

    W is `X' S` where there are fewer records than entries, with `S = (X X' + penalty I)^-1 Y`, which is the
    same as `(X' X + penalty I)^-1 X' Y`; and `X X' S = Y - penalty S`. Rows of zeros, which pad a shard,
    change nothing.

    >>> kernel, given = ridge(jnp.array([[2.0, 0, 0]]), jnp.array([[5.0]]), 1.0)
    >>> kernel.ravel().tolist(), given.ravel().tolist()
    ([2.0, 0.0, 0.0], [4.0])
    """
    with jax.default_matmul_precision("highest"):
        if len(inputs) < inputs.shape[1]:
            shares = _solved(inputs.T, targets, penalty)
            return _products(inputs, shares), targets - penalty * shares
        kernel = _solved(inputs, _products(inputs, targets), penalty)
        return kernel, inputs @ kernel


def _products(tall: Array, few: Array) -> Array:
    """`tall' few` for few columns; where XLA sees the last transposition, CPUs take 2 to 3 times as long."""
    return jax.lax.optimization_barrier(few.T @ tall).T


def _solved(tall: Array, right: Array, penalty: float) -> Array:
    return solve(gram(tall) + penalty * jnp.eye(len(right)), right)


def gram(tall: Float[Array, "rows columns"]) -> Float[Array, "columns columns"]:
    """`tall' tall` in blocks of columns, with zeros above the blocks on the diagonal: nothing reads those."""
    blocks = []
    for start in range(0, tall.shape[1], SIZE):
        end = min(start + SIZE, tall.shape[1])
        block = tall[:, start:end].T @ tall[:, :end]
        blocks.append(jnp.pad(block, ((0, 0), (0, tall.shape[1] - end))))
    return jnp.concatenate(blocks)


def teacher(model: Model, config: TeacherConfig) -> Teacher:
    """The functions of one linear teacher; `config` must be resolved. Its only step is the whole solution."""
    penalty = config.weight_decay or 0.0
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    classes = shapes["kernel"].shape[1]

    def drawn(key: Array) -> Tree:
        return model.init(jax.random.wrap_key_data(key, impl="threefry2x32"))

    def zeros(key: Array) -> Tree:
        return jax.tree.map(jnp.zeros_like, shapes)

    def start(shard: Shard, attempt: Array) -> State:
        zero = jnp.zeros((), jnp.int32)
        params = jax.lax.cond(shard.count > 0, zeros, drawn, shard.key)
        return State(params, (), (), zero, zero, attempt, jnp.zeros(()), zero)

    def solved(state: State, shard: Shard) -> State:
        real = jnp.arange(len(shard.labels)) < shard.count
        wanted = jax.nn.one_hot(shard.labels, classes) - 1 / classes
        wanted = jnp.where(real[:, None], wanted, 0.0)
        kernel, given = ridge(shard.inputs, wanted, penalty)
        return state._replace(
            params={"kernel": kernel},
            position=state.position + 1,
            loss=((given - wanted) ** 2).sum() / 2,
            hits=jnp.sum(real & (jnp.argmax(given, -1) == shard.labels), dtype=jnp.int32),
        )

    def step(state: State, shard: Shard) -> State:
        return jax.lax.cond(shard.count > 0, solved, lambda state, shard: state, state, shard)

    def turn(state: State, shard: Shard) -> tuple[State, News]:
        epoch = jnp.minimum(shard.count, 1)
        most = jnp.maximum(shard.count, 1)
        failed = ~jnp.isfinite(state.loss)
        news = News(state.loss / most, state.hits / most, epoch, state.attempt, failed)
        return state._replace(epoch=epoch), news

    return Teacher(start, step, turn)


SIZE = 96  # columns of a block: with fewer, products are slow
_ELIMINATED = 32  # columns, together: with more, each step of elimination is slow


def solve(
    matrix: Float[Array, "rows rows"], right: Float[Array, "rows columns"]
) -> Float[Array, "rows columns"]:
    """`matrix^-1 right`, from the blocked Cholesky factors of a positive definite matrix.

    Only the lower half of the matrix is read, and whole blocks of `SIZE` columns on its diagonal.

    >>> solve(jnp.array([[4.0, 2], [2, 5]]), jnp.array([[8.0], [12]])).ravel().tolist()
    [1.0, 2.0]
    """
    inverses, below, middle = [], [], []
    while len(matrix):
        inverse = inverse_factor(matrix[:SIZE, :SIZE])
        lower = product(matrix[SIZE:, :SIZE], inverse.T)
        middle.append(product(inverse, right[:SIZE]))
        matrix = matrix[SIZE:, SIZE:] - product(lower, lower.T)
        right = right[SIZE:] - product(lower, middle[-1])
        inverses.append(inverse)
        below.append(lower)
    found = right  # no rows are left
    for inverse, lower, part in zip(inverses[::-1], below[::-1], middle[::-1], strict=True):
        found = jnp.concatenate([product(inverse.T, part - product(lower.T, found)), found])
    return found


def inverse_factor(block: Float[Array, "size size"]) -> Float[Array, "size size"]:
    """`L^-1` where `block = L L'`, from those of its first columns and of what is left."""
    if len(block) <= _ELIMINATED:
        return _eliminated(block)
    first = inverse_factor(block[:_ELIMINATED, :_ELIMINATED])
    lower = product(block[_ELIMINATED:, :_ELIMINATED], first.T)
    last = inverse_factor(block[_ELIMINATED:, _ELIMINATED:] - product(lower, lower.T))
    corner = jnp.zeros((len(first), len(last)))
    return jnp.block([[first, corner], [-product(last, product(lower, first)), last]])


def _eliminated(block: Array) -> Array:
    """The same for few columns: what elimination makes of the identity beside the block, rows scaled."""
    size = len(block)

    def eliminate(column: Array, beside: Array) -> Array:
        pivot = beside[column]
        shares = jnp.where(jnp.arange(size) > column, beside[:, column] / pivot[column], 0.0)
        return beside - shares[:, None] * pivot

    done = jax.lax.fori_loop(0, size, eliminate, jnp.concatenate([block, jnp.eye(size)], axis=1))
    return done[:, size:] * jax.lax.rsqrt(jnp.diagonal(done))[:, None]


Made = TypeVar("Made")


def longest(counts: np.ndarray, plan: Plan) -> int:
    """Places for the records of the longest shard."""
    return int(places(counts, sizes(plan, len(counts))).max())


def train(machine: Machine, data: feeding.Records, ids: np.ndarray, wave: Wave, tell: Tell) -> Wave:
    """Solve a wave's teachers."""
    waiting = None
    for group, feed in ahead(feeds(machine, data, ids)):
        real = group >= 0
        resident, state = waves.begin(machine, feed)
        state, news = machine.programs.turn(machine.programs.steps(state, resident, 1), resident)
        if waiting is not None:
            _store(wave, *waiting)
        waiting = state, news, waves.rows_of(ids, group[real]), real
        tell(float(feed.count.sum()))
    if waiting is not None:
        _store(wave, *waiting)
    return wave


def _store(wave: Wave, state: State, news: News, rows: np.ndarray, real: np.ndarray) -> None:
    waves.store(wave, state, programs.fetch(news), rows, real)


def feeds(machine: Machine, data: feeding.Records, ids: np.ndarray) -> Iterator[tuple[np.ndarray, Shard]]:
    """The rounds of a wave: the teachers of each, and their shards."""
    for length, group in rounds(ids, data.counts, machine.plan, len(machine.devices)):
        yield group, feeding.take(data._replace(length=length), group, machine.config)


def rounds(ids: np.ndarray, counts: np.ndarray, plan: Plan, devices: int) -> Iterator[tuple[int, np.ndarray]]:
    """The rounds of a wave, each with the places of its shards, which shape its program.

    One by one, a teacher may have any place, and devices share a round evenly. In a vmap its place follows
    from its id alone, since bits may depend on the place: a round is done once for each length, with the
    others' places left empty.
    """
    lengths, size = places(counts, sizes(plan, len(counts))), plan.width * devices
    for length in np.unique(lengths[ids]).tolist():
        if plan.one_by_one:
            for group in waves.cut(ids[lengths[ids] == length], size):
                yield length, group.reshape(plan.width, devices).T.ravel()
        else:
            for group in waves.cut(ids, size):
                mine = np.where(lengths[group] == length, group, -1)
                if (mine >= 0).any():
                    yield length, mine


def ahead(made: Iterator[Made]) -> Iterator[Made]:
    """The same, each made by a thread while the one before is in use.

    >>> list(ahead(iter([2, 3, 5])))
    [2, 3, 5]
    """
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, made, None)
        while (one := coming.result()) is not None:
            coming = thread.submit(next, made, None)
            yield one
