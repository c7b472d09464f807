# %% [markdown]
# # Your own table
#
# Two files are needed: private records with labels and ids, and public inputs of the same kind. Here both
# are made up; yours may be `.npz` as below or `.csv`. An id belongs to its record and stays with it: its
# teacher follows from it.

# %%
import tempfile
from pathlib import Path

import numpy as np

from pate_jax import RunConfig, Student
from pate_jax.ensemble import TeacherConfig
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.runs import pipeline
from pate_jax.runs.settings import DataChoice, PartitionChoice
from pate_jax.student import Supervised

folder = Path(tempfile.mkdtemp())
random = np.random.default_rng(0)
centres = random.normal(size=(3, 6))
for name, records in (("train", 900), ("pool", 80), ("test", 200)):
    labels = random.integers(0, 3, records).astype(np.int32)
    inputs = (2 * centres[labels] + random.normal(size=(records, 6))).astype(np.float32)
    ids = np.array([f"{name}-{number}" for number in random.permutation(records)])
    np.savez(folder / f"{name}.npz", inputs=inputs, labels=labels, ids=ids)

# %% [markdown]
# The same as `pate run --private train.npz --public pool.npz --test test.npz --teachers 15 ...`.
# `budget_epsilon` is the figure to publish, fixed before the first answer: no more is asked than it
# affords.

# %%
config = RunConfig(
    data=DataChoice(private=folder / "train.npz", public=folder / "pool.npz", test=folder / "test.npz"),
    partition=PartitionChoice(teachers=15),
    teacher=TeacherConfig(epochs=10, min_steps=40),
    student=Supervised(steps=80),
    mechanism=DiscreteGaussianMax(sigma=4.0),
    queries=80,
    budget_epsilon=8.0,
    out=folder / "run",
)
results = pipeline.run(config)
print(f"{results['answered']} answers, student right on {results['student_accuracy']:.0%} of the test part")
assert 0 < results["answered"] <= 80

# %% [markdown]
# ## Use what may leave
#
# The student is read from `release/student/` and serves itself.

# %%
student = Student.load(folder / "run" / "release")
with np.load(folder / "test.npz") as test:
    probabilities = student(test["inputs"])
assert probabilities.shape == (200, 3)
np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-4)
