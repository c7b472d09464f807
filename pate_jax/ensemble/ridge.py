"""How ONE linear teacher learns: by ridge regression on its own records, in closed form.

A teacher's matrix is a function of its own records and of public values, bit for bit. So nothing about
another teacher may shape its program: it has room for as many teachers, however many there are (`plan`), and
for as many records as the teacher's own count wants (`places`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from pate_jax.ensemble import cholesky
from pate_jax.ensemble.plan import Plan
from pate_jax.ensemble.settings import TeacherConfig
from pate_jax.ensemble.teacher import News, Shard, State, Teacher
from pate_jax.models import Model
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
    return cholesky.solve(gram(tall) + penalty * jnp.eye(len(right)), right)


def gram(tall: Float[Array, "rows columns"]) -> Float[Array, "columns columns"]:
    """`tall' tall` in blocks of columns, with zeros above the blocks on the diagonal: nothing reads those."""
    blocks = []
    for start in range(0, tall.shape[1], cholesky.SIZE):
        end = min(start + cholesky.SIZE, tall.shape[1])
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
