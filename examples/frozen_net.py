# %% [markdown]
# # Heads and adapters of a frozen net
#
# A net that was trained on public data stays as it is; each teacher learns a small head and an adapter after
# each layer. `trainable=` names them by path. What is frozen is stored once, and not for each teacher.
#
# `python examples/frozen_net.py full` trains 250 teachers of 200 records each.

# %%
import itertools
import sys

import jax
import numpy as np
import optax
from flax import nnx

from pate_jax import accounting, aggregate, data, ensemble, models
from pate_jax.data import partition
from pate_jax.mechanisms import DiscreteGaussianMax

TEACHERS, RECORDS = (250, 200) if sys.argv[-1:] == ["full"] else (20, 100)
SIZES = (1, 8, 16, 32)


class Adapter(nnx.Module):
    """Four numbers of each place, added to it; nothing at first."""

    def __init__(self, maps: int, *, rngs: nnx.Rngs):
        self.down = nnx.Linear(maps, 4, rngs=rngs)
        self.up = nnx.Linear(4, maps, kernel_init=nnx.initializers.zeros, rngs=rngs)

    def __call__(self, flowing):
        return flowing + self.up(nnx.relu(self.down(flowing)))


class Net(nnx.Module):
    """Three convolutions, an adapter after each, and a head."""

    def __init__(self, classes: int, *, rngs: nnx.Rngs):
        for place, (before, after) in enumerate(itertools.pairwise(SIZES)):
            setattr(self, f"body{place}", nnx.Conv(before, after, (3, 3), strides=2, rngs=rngs))
            setattr(self, f"adapter{place}", Adapter(after, rngs=rngs))
        self.head = nnx.Linear(16 * SIZES[-1], classes, rngs=rngs)

    def __call__(self, images):
        for place in range(len(SIZES) - 1):
            images = getattr(self, f"adapter{place}")(nnx.relu(getattr(self, f"body{place}")(images)))
        return self.head(images.reshape(len(images), -1))


# %% [markdown]
# ## A net of public data: made-up characters

# %%
public = data.load("glyphs", size=4_000, classes=30).private  # drawn by this package, so nobody's
net = Net(30, rngs=nnx.Rngs(0))
optimizer = nnx.Optimizer(net, optax.adam(3e-3), wrt=nnx.Param)


@nnx.jit
def step(net, optimizer, images, labels):
    def lost(net):
        return optax.softmax_cross_entropy_with_integer_labels(net(images), labels).mean()

    optimizer.update(net, nnx.grad(lost)(net))


draws = np.random.default_rng(0)
for _ in range(300):
    rows = draws.integers(0, len(public.labels), 64)
    step(net, optimizer, public.inputs[rows] / np.float32(255), np.asarray(public.labels)[rows])

# %% [markdown]
# ## Teachers of digits, which learn heads and adapters alone

# %%
strokes = data.load("strokes", size=TEACHERS * RECORDS)
net.head = nnx.Linear(16 * SIZES[-1], strokes.classes, rngs=nnx.Rngs(1))
model = models.model_of(net, strokes.input_shape, trainable=("adapter", "head"))
private = strokes.private
teachers = ensemble.fit(
    model,
    strokes.preprocessing,
    private.inputs,
    private.labels,
    partition.divide(private, TEACHERS, key=b"a secret of thirty-two bytes ...."),
    key=jax.random.key(0),
    config=ensemble.TeacherConfig(batch_size=20, epochs=10, min_steps=50),
    tx=optax.adam(3e-3),
)
learned = sum(leaf[0].size for leaf in jax.tree.leaves(teachers.params["params"]))
whole = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(net, nnx.Param)))
print(f"{TEACHERS} teachers of about {RECORDS} records learn {learned:,} of {whole:,} numbers each")
assert learned < whole

# %% [markdown]
# ## Votes, answers, and what they cost

# %%
asked, truth = strokes.public.inputs[:200], strokes.public.labels[:200]
votes = ensemble.vote(model, strokes.preprocessing, teachers, asked)
sizes = {"queries": 200, "teachers": TEACHERS, "classes": strokes.classes}
budget = 2.0 if TEACHERS == 250 else 20.0  # of so few teachers answers are dear
mechanism, epsilon = accounting.calibrate(DiscreteGaussianMax(1.0), budget, 1e-5, **sizes)
answers = aggregate.answer(mechanism, votes, key=aggregate.fresh_key())
right = np.mean(np.asarray(answers.labels) == truth)
print(f"{right:.0%} of 200 answers are right; epsilon {epsilon:.2f} at delta 1e-5")
assert right > 0.5
