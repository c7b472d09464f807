"""The supervised student: cross-entropy on the answered queries, with smoothing and small shifts."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Int

from pate_jax import augment, models, progress
from pate_jax.student.interface import PublicInputs, Student, StudentConfig

_STEPS_A_TICK = 25


def fit(
    key: jax.Array,
    public_inputs: PublicInputs,
    answered: Int[np.ndarray, "answered"],
    labels: Int[np.ndarray, "answered"],
    config: StudentConfig,
) -> Student:
    """Train on the inputs at rows `answered` with their noisy labels."""
    inputs = public_inputs.inputs[answered]
    shape = inputs.shape[1:]
    net = config.net or ("cnn" if len(shape) == 3 else "table")
    model = models.build(net, input_shape=shape, classes=public_inputs.classes)
    optimiser = _optimiser(config)
    init_key, batch_key = jax.random.split(key)
    parameters = model.init(init_key)
    state = optimiser.init(parameters)
    step = jax.jit(partial(_step, model, optimiser, public_inputs, config))
    data = jnp.asarray(inputs), jnp.asarray(labels)
    with progress.bar("student", total=config.steps) as bar:
        for index, now in enumerate(jax.random.split(batch_key, config.steps)):
            parameters, state, loss = step(parameters, state, data, now)
            if index % _STEPS_A_TICK == _STEPS_A_TICK - 1:
                bar.advance(_STEPS_A_TICK, note=f"loss {float(loss):.3f}")
    return Student(parameters, model.description, public_inputs.preprocessing, public_inputs.class_names)


def _optimiser(config: StudentConfig) -> optax.GradientTransformation:
    schedule = optax.warmup_cosine_decay_schedule(0.0, config.learning_rate, config.steps // 10, config.steps)
    return optax.adamw(schedule, weight_decay=config.weight_decay)


def _step(model, optimiser, public_inputs, config, parameters, state, data, key):
    rows_key, shift_key = jax.random.split(key)
    inputs, labels = data
    rows = jax.random.randint(rows_key, (config.batch_size,), 0, len(labels))
    batch = inputs[rows]
    if batch.ndim == 4 and config.shift:
        keys = jax.random.split(shift_key, config.batch_size)
        batch = jax.vmap(partial(augment.shift, pixels=config.shift))(keys, batch)
    batch = public_inputs.preprocessing.apply(batch)
    targets = optax.smooth_labels(jax.nn.one_hot(labels[rows], public_inputs.classes), config.label_smoothing)

    def loss(parameters):
        return optax.softmax_cross_entropy(model.apply(parameters, batch), targets).mean()

    value, gradient = jax.value_and_grad(loss)(parameters)
    updates, state = optimiser.update(gradient, state, parameters)
    return optax.apply_updates(parameters, updates), state, value
