# %% [markdown]
# # A Flax net of your own as 100 teachers
#
# A module of `flax.linen` or `flax.nnx` is taken as it is: statistics of BatchNorm, streams of dropout and
# every other collection stay each teacher's own. The rule is any chain of optax.

# %%
import jax
import numpy as np
import optax
from flax import linen

from pate_jax import accounting, aggregate, data, ensemble, student
from pate_jax.data import partition
from pate_jax.mechanisms import DiscreteGaussianMax


class Small(linen.Module):
    """Two convolutions, each with BatchNorm, and dropout before the last layer."""

    classes: int

    @linen.compact
    def __call__(self, images, train: bool):
        for maps in (8, 16):
            images = linen.Conv(maps, (3, 3), strides=2)(images)
            images = linen.relu(linen.BatchNorm(use_running_average=not train, momentum=0.9)(images))
        images = linen.Dropout(0.1, deterministic=not train)(images.reshape(len(images), -1))
        return linen.Dense(self.classes)(images)


# %% [markdown]
# ## Teachers
#
# Strokes are drawn images. Each record goes to one teacher, which a keyed hash of its id chooses.

# %%
strokes, net = data.load("strokes", size=12_000), Small(classes=10)
private, asked = strokes.private, strokes.public.inputs[:200]
shards = partition.divide(private, 100, key=b"a secret of thirty-two bytes ....")
teachers = ensemble.fit(
    net,
    strokes.preprocessing,
    private.inputs,
    private.labels,
    shards,
    key=jax.random.key(0),
    config=ensemble.TeacherConfig(batch_size=16, epochs=1, min_steps=150),
    tx=optax.adam(5e-3),
)
votes = ensemble.vote(net, strokes.preprocessing, teachers, asked)
print(f"{len(teachers.ids)} teachers of about {len(private.labels) // 100} records each")
assert votes.shape == (200, 10) and (votes.sum(1) == 100).all()

# %% [markdown]
# ## Answers, and what they cost

# %%
asked_in_all = {"queries": 200, "teachers": 100, "classes": 10}
mechanism, epsilon = accounting.calibrate(DiscreteGaussianMax(1.0), 5.0, 1e-5, **asked_in_all)
answers = aggregate.answer(mechanism, votes, key=aggregate.fresh_key())
right = np.mean(np.asarray(answers.labels) == strokes.public.labels[:200])
print(f"{right:.0%} of 200 answers are right; epsilon {epsilon:.2f} at delta 1e-5")
assert right > 0.5

# %% [markdown]
# ## A student by the same net
#
# It reads public inputs and answers alone. `save` writes safetensors and a program of StableHLO, which runs
# where nobody has the source of `Small`; `Student.load(folder, net=Small(10))` needs the module.

# %%
public = student.PublicInputs.of(strokes, first=np.arange(200))
pupil = student.fit_net(net, public, answers, key=jax.random.key(1), steps=400, tx=optax.adam(3e-3))
accuracy = pupil.accuracy(strokes.test.inputs[:1000], strokes.test.labels[:1000])
print(f"the student is right on {accuracy:.0%} of test images")
assert accuracy > 0.4
