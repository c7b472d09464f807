"""How ONE linear teacher learns: by ridge regression on its own records, in closed form.

A teacher's matrix is a function of its own records and of public values, bit for bit. So nothing about
another teacher may shape its program: it has room for as many teachers, however many there are (`plan`), and
for as many records as the teacher's own count wants (`places`).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from pate_jax.ensemble import cholesky
from pate_jax.ensemble.settings import TeacherConfig
from pate_jax.ensemble.teacher import News, Shard, State, Teacher
from pate_jax.models import Model


def places(counts: Int[np.ndarray, " teachers"], usual: int) -> Int[np.ndarray, " teachers"]:
    """Places for the records of shards: `usual`, doubled until they suffice.

    >>> places(np.array([0, 40, 41, 200]), usual=40).tolist()
    [40, 40, 80, 320]
    """
    doublings = np.ceil(np.log2(np.maximum(counts, usual) / usual)).astype(np.int64)
    return usual << doublings


def ridge(
    inputs: Float[Array, "places entries"],
    targets: Float[Array, "places classes"],
    penalty: float,
) -> Float[Array, "entries classes"]:
    """The matrix W that minimises `|X W - Y|^2 + penalty |W|^2`, from normal equations.

    They are `X' (X X' + penalty I)^-1 Y` where there are fewer records than entries, which is the same as
    `(X' X + penalty I)^-1 X' Y`. Rows of zeros, which pad a shard, change neither.

    >>> ridge(jnp.array([[2.0, 0, 0]]), jnp.array([[5.0]]), 1.0).ravel().tolist()
    [2.0, 0.0, 0.0]
    """
    with jax.default_matmul_precision("highest"):
        if len(inputs) < inputs.shape[1]:
            return inputs.T @ _solved(inputs @ inputs.T, targets, penalty)
        return _solved(inputs.T @ inputs, inputs.T @ targets, penalty)


def _solved(square: Array, right: Array, penalty: float) -> Array:
    return cholesky.solve(square + penalty * jnp.eye(len(square)), right)


def teacher(model: Model, config: TeacherConfig) -> Teacher:
    """The functions of one linear teacher; `config` must be resolved. Its only step is the whole solution."""
    penalty = config.weight_decay or 0.0
    classes = jax.eval_shape(model.init, jax.random.key(0))["kernel"].shape[1]

    def start(shard: Shard, attempt: Array) -> State:
        zero = jnp.zeros((), jnp.int32)
        params = model.init(jax.random.wrap_key_data(shard.key, impl="threefry2x32"))
        return State(params, (), (), zero, zero, attempt, jnp.zeros(()), zero)

    def step(state: State, shard: Shard) -> State:
        real = jnp.arange(len(shard.labels)) < shard.count
        inputs = jnp.where(real[:, None], shard.inputs, 0.0)
        wanted = jax.nn.one_hot(shard.labels, classes) - 1 / classes
        wanted = jnp.where(real[:, None], wanted, 0.0)
        kernel = ridge(inputs, wanted, penalty)
        given = model.apply({"kernel": kernel}, inputs)
        hits = jnp.sum(real & (jnp.argmax(given, -1) == shard.labels), dtype=jnp.int32)
        solved = state._replace(
            params={"kernel": kernel},
            position=state.position + 1,
            loss=((given - wanted) ** 2).sum() / 2,
            hits=hits,
        )
        return jax.tree.map(lambda new, old: jnp.where(shard.count > 0, new, old), solved, state)

    def turn(state: State, shard: Shard) -> tuple[State, News]:
        epoch = jnp.minimum(shard.count, 1)
        most = jnp.maximum(shard.count, 1)
        failed = ~jnp.isfinite(state.loss)
        news = News(state.loss / most, state.hits / most, epoch, state.attempt, failed)
        return state._replace(epoch=epoch), news

    return Teacher(start, step, turn)
