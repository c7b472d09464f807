# %% [markdown]
# # An ensemble on a mesh of yours
#
# `ensemble.fit` takes all devices of its process. Where a program has made a mesh, `mesh=` and `axis=` put
# teachers along one of its axes, by `shard_map`; no bit of any teacher depends on that.

# %%
from pate_jax.system import devices

devices.prepare(4)  # before JAX starts: four devices, where a CPU would have one

import jax  # noqa: E402
import numpy as np  # noqa: E402

from pate_jax import aggregate, ensemble, models  # noqa: E402
from pate_jax.data.dataset import AS_STORED  # noqa: E402
from pate_jax.data.partition import Shards  # noqa: E402
from pate_jax.mechanisms import DiscreteGaussianMax  # noqa: E402

random = np.random.default_rng(0)
labels = random.integers(0, 3, 1_200)
inputs = (2 * np.eye(3, 8)[labels] + random.normal(size=(1_200, 8))).astype(np.float32)
shards = Shards(np.arange(1_000, dtype=np.int32).reshape(20, 50), np.full(20, 50, np.int32))
net = models.build("mlp", input_shape=(8,), classes=3, hidden=(16,))

# %% [markdown]
# ## The same teachers, by `fit`
#
# The mesh has two axes; teachers lie along the first, and the second is left to whatever else uses it.

# %%
count = jax.device_count() // 2 * 2 or 1
shape = (count // 2, 2) if count > 1 else (1, 1)
kinds = (jax.sharding.AxisType.Auto,) * 2
mesh = jax.make_mesh(shape, ("teachers", "model"), axis_types=kinds, devices=jax.devices()[:count])
config = ensemble.TeacherConfig(net="mlp", batch_size=16, epochs=1, min_steps=40, width=1)
given, key = (net, AS_STORED, inputs, labels, shards), jax.random.key(0)
on_mesh = ensemble.fit(*given, key=key, config=config, mesh=mesh, axis="teachers")
alone = ensemble.fit(*given, key=key, config=config)
same = jax.tree.map(np.array_equal, on_mesh.params, alone.params)
print(f"{mesh.shape}: every bit the same: {all(jax.tree.leaves(same))}")
assert all(jax.tree.leaves(same))

# %% [markdown]
# ## Inside a program of yours
#
# `functions` gives them as pure functions: from shards to parameters, and to votes. The parameters stay where
# they are, divided over the mesh.

# %%
feed = ensemble.shards_of(inputs, labels, shards, key=key, config=config)
train, votes_of = ensemble.functions(net, AS_STORED, feed, config, mesh=mesh, axis="teachers")
mechanism = DiscreteGaussianMax(sigma=4.0)


@jax.jit
def answers_to(feed, asked, key):
    teachers, _ = train(feed)
    return aggregate.answer(mechanism, votes_of(teachers, asked), key=key).labels


answers = answers_to(feed, inputs[1_000:], aggregate.fresh_key())
print(f"{np.mean(np.asarray(answers) == labels[1_000:]):.0%} of 200 answers are right")
assert np.mean(np.asarray(answers) == labels[1_000:]) > 0.6
