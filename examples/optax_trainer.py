# %% [markdown]
# # PATE inside a trainer that is there already
#
# Whoever has a training loop by optax keeps it. Private records go to teachers in place of the loop, and the
# loop learns public inputs and their noisy answers.

# %%
import jax
import numpy as np
import optax
from flax import nnx

from pate_jax import accounting, aggregate, ensemble
from pate_jax.data.dataset import AS_STORED
from pate_jax.data.partition import Shards
from pate_jax.mechanisms import ConfidentDiscreteGaussian


class Net(nnx.Module):
    """Two layers and dropout, as NNX has them."""

    def __init__(self, hidden: int, *, rngs: nnx.Rngs):
        self.first, self.last = nnx.Linear(12, hidden, rngs=rngs), nnx.Linear(hidden, 4, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)

    def __call__(self, inputs):
        return self.last(self.dropout(nnx.relu(self.first(inputs))))


def trained(inputs, labels, steps=200):
    """The trainer that was there: it knows nothing of privacy."""
    net = Net(32, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(net, optax.adamw(0.01), wrt=nnx.Param)

    @nnx.jit
    def step(net, optimizer, inputs, labels):
        def lost(net):
            return optax.softmax_cross_entropy_with_integer_labels(net(inputs), labels).mean()

        optimizer.update(net, nnx.grad(lost)(net))

    draws = np.random.default_rng(0)
    for _ in range(steps):
        rows = draws.integers(0, len(inputs), 64)
        step(net, optimizer, inputs[rows], labels[rows])
    net.eval()
    return net


# %% [markdown]
# ## The data: 10,000 private records, 400 public inputs

# %%
random = np.random.default_rng(0)
labels = random.integers(0, 4, 11_000)
inputs = (2 * np.eye(4, 12)[labels] + random.normal(size=(11_000, 12))).astype(np.float32)
private, public, test = np.split(np.arange(11_000), (10_000, 10_400))

# %% [markdown]
# ## Teachers learn the private records by the same net and the same kind of rule

# %%
shards = Shards(private.reshape(200, 50).astype(np.int32), np.full(200, 50, np.int32))
make = ensemble.TeacherConfig(batch_size=16, min_steps=60, epochs=1)
given = (np.asarray(inputs), labels, shards)
net = Net(32, rngs=nnx.Rngs(1))  # all teachers start with its numbers, which must be public
teachers = ensemble.fit(net, AS_STORED, *given, key=jax.random.key(0), config=make, tx=optax.adamw(0.01))
votes = ensemble.vote(net, AS_STORED, teachers, inputs[public])

# %% [markdown]
# ## The trainer learns what they answer
#
# Where the teachers do not agree there is no answer; those inputs are left out.

# %%
mechanism = ConfidentDiscreteGaussian(threshold=100, sigma_threshold=30.0, sigma=10.0)
asked = {"queries": 400, "teachers": 200, "classes": 4}
mechanism, epsilon = accounting.calibrate(mechanism, 3.0, 1e-5, **asked)
answers = aggregate.answer(mechanism, votes, key=aggregate.fresh_key())
there = np.asarray(answers.answered)
student = trained(inputs[public][there], np.asarray(answers.labels)[there])

right = float(np.mean(np.asarray(student(inputs[test])).argmax(1) == labels[test]))
print(f"{there.sum()} of 400 answered; {right:.0%} of test inputs right; epsilon {epsilon:.2f} at delta 1e-5")
assert right > 0.7
