# %% [markdown]
# # Votes to answers inside a training loop
#
# A student learns while its teachers are asked: each step takes a batch of public inputs, counts the votes,
# answers with noise under a key of its own, and takes a gradient. All of it is one compiled loop.

# %%
import jax
import jax.numpy as jnp
import numpy as np
import optax

from pate_jax import accounting, aggregate, ensemble, models
from pate_jax.data.dataset import AS_STORED
from pate_jax.data.partition import Shards
from pate_jax.mechanisms import DiscreteGaussianMax

random = np.random.default_rng(0)
centres = 2 * np.eye(4, 12)
labels = random.integers(0, 4, 11_000)
inputs = (centres[labels] + random.normal(size=(11_000, 12))).astype(np.float32)
private, public, test = np.split(np.arange(11_000), (10_000, 10_400))

# %% [markdown]
# ## Two hundred teachers as one function
#
# `shards_of` cuts what each teacher is fed, and `functions` gives two pure functions: shards to parameters,
# and parameters and inputs to votes. They may stand in any `jit`, and on any mesh.

# %%
net = models.build("mlp", input_shape=(12,), classes=4, hidden=(16,))
config = ensemble.TeacherConfig(net="mlp", batch_size=16, min_steps=60, epochs=1)
rows = random.permutation(private).reshape(200, 50).astype(np.int32)
shards = Shards(rows, np.full(200, 50, np.int32))
feed = ensemble.shards_of(inputs, labels, shards, key=jax.random.key(0), config=config)
train, votes_of = ensemble.functions(net, AS_STORED, feed, config)
teachers, _ = jax.jit(train)(feed)

# %% [markdown]
# ## The loop
#
# The noise is the whole privacy: `fresh_key` draws it from the operating system, and each step has its own.

# %%
asked_in_all = {"queries": 400, "teachers": 200, "classes": 4}
mechanism, epsilon = accounting.calibrate(DiscreteGaussianMax(1.0), 3.0, 1e-5, **asked_in_all)
tx = optax.adam(0.05)


def step(carry, batch):
    params, moments = carry
    asked, key = batch
    answers = aggregate.answer(mechanism, votes_of(teachers, asked), key=key)

    def lost(params):
        logits = net.apply(params, asked)
        return optax.softmax_cross_entropy_with_integer_labels(logits, answers.labels).mean()

    found, slope = jax.value_and_grad(lost)(params)
    updates, moments = tx.update(slope, moments, params)
    return (optax.apply_updates(params, updates), moments), found


batches = jnp.asarray(inputs[public].reshape(40, 10, 12))  # 400 inputs, each asked about once
keys = jax.random.split(aggregate.fresh_key(), len(batches))
first = net.init(jax.random.key(1))
(student, _), losses = jax.jit(lambda first: jax.lax.scan(step, (first, tx.init(first)), (batches, keys)))(
    first
)

right = float(np.mean(np.asarray(net.apply(student, inputs[test])).argmax(1) == labels[test]))
print(f"loss {losses[0]:.2f} to {losses[-1]:.2f}; {right:.0%} of test inputs right; epsilon {epsilon:.2f}")
assert right > 0.7 and losses[-1] < losses[0]
