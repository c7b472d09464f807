"""One teacher's steps, beside the same steps written with optax alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pate_jax import models
from pate_jax.ensemble.settings import TeacherConfig
from pate_jax.ensemble.teacher import CLOCK, Shard, teacher

RECORDS, BATCH, EPOCHS = 6, 3, 2
RNG = np.random.default_rng(0)
INPUTS, LABELS = RNG.normal(size=(RECORDS, 4)).astype(np.float32), np.array([0, 1, 2, 0, 1, 2], np.int32)
RULES = {
    "sgd": lambda c: optax.chain(
        optax.add_decayed_weights(c.weight_decay), optax.trace(c.momentum, nesterov=True)
    ),
    "adam": lambda c: optax.chain(optax.scale_by_adam(), optax.add_decayed_weights(c.weight_decay)),
}


def linear() -> models.Model:
    init = lambda key: {"kernel": jax.random.normal(key, (4, 3))}  # noqa: E731
    return models.Model(init, lambda params, inputs: inputs @ params["kernel"], {"kind": "linear"})


@pytest.mark.parametrize("optimizer", RULES)
def test_steps_are_those_of_optax_until_the_training_is_over(optimizer):
    config = TeacherConfig(
        net="mlp",
        optimizer=optimizer,
        learning_rate=0.1,
        weight_decay=0.02,
        epochs=EPOCHS,
        batch_size=BATCH,
        augment="none",
        min_steps=1,
        warmup=0.0,
    )
    model, key = linear(), jax.random.key_data(jax.random.key(3))
    shard = Shard(INPUTS, LABELS, np.int32(RECORDS), np.int32(EPOCHS), key, np.int32(2), np.float32(1.1))
    made = teacher(model, lambda inputs: inputs, config)
    move, turn = jax.jit(made.step), jax.jit(made.turn)
    state = jax.jit(made.start)(shard, jnp.int32(0))

    rule, wanted = RULES[optimizer](config), state.params
    moments, total = rule.init(wanted), EPOCHS * RECORDS // BATCH
    rate = optax.cosine_decay_schedule(0.1, CLOCK)

    @jax.jit
    def stepped(params, moments, rows, rate):
        updates, moments = rule.update(jax.grad(loss)(params, rows), moments, params)
        return {"kernel": params["kernel"] - rate * updates["kernel"]}, moments

    def loss(params, rows):
        scores = model.apply(params, jnp.asarray(INPUTS)[rows])
        return optax.softmax_cross_entropy_with_integer_labels(scores, jnp.asarray(LABELS)[rows]).mean()

    for step in range(total):
        rows = np.asarray(state.order)[BATCH * int(state.position) :][:BATCH]
        wanted, moments = stepped(wanted, moments, rows, rate((step + 0.5) / total * CLOCK))
        state = move(state, shard)
        np.testing.assert_allclose(state.params["kernel"], wanted["kernel"], rtol=1e-5, atol=1e-6)
        if state.position == RECORDS // BATCH:
            state, _ = turn(state, shard)
    assert state.epoch == EPOCHS
    after = move(state, shard)
    for one, other in zip(jax.tree.leaves(after), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(one, other)
