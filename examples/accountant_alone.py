# %% [markdown]
# # The accountant alone
#
# `pate_jax.accounting` needs no JAX: it is NumPy on the host. It reads a mechanism and a number of queries,
# or the votes themselves, whoever has cast them.

# %%
import numpy as np

from pate_jax import accounting
from pate_jax.mechanisms import ConfidentDiscreteGaussian, DiscreteGaussianMax

# %% [markdown]
# ## How much noise for a wished epsilon
#
# Five hundred answers for epsilon 1 at delta 1e-5, whatever the votes turn out to be.

# %%
asked = {"queries": 500, "teachers": 250, "classes": 3}
found = accounting.calibrate(DiscreteGaussianMax(sigma=1.0), 1.0, 1e-5, **asked)
print(f"sigma {found.mechanism.sigma:.1f} on each count of votes, for epsilon {found.epsilon:.4f}")
assert 0.99 < found.epsilon <= 1

# %% [markdown]
# ## What is published, and what only its owner may see
#
# A figure that reads the votes is smaller, and is itself private: the statement says which is which.

# %%
votes = np.random.default_rng(0).multinomial(250, [0.9, 0.06, 0.04], size=500)
careful = ConfidentDiscreteGaussian(threshold=200, sigma_threshold=60.0, sigma=20.0)
statement = accounting.statement(careful, votes, np.ones(500, bool), 1e-5, pld=False, private=True)
for name, figure in statement.figures.items():
    if figure.epsilon is not None:
        print(f"{name:18} epsilon {figure.epsilon:7.3f}  {figure.status}")
shown = {name: figure.status for name, figure in statement.figures.items()}
assert shown["data_independent"] == "publishable" and "sensitive" in shown.values()

# %% [markdown]
# ## How many more answers there would be
#
# The same budget in three sizes: an answer costs about as much as its square in noise.

# %%
for queries in (100, 1_000, 10_000):
    noise = accounting.calibrate(DiscreteGaussianMax(1.0), 1.0, 1e-5, **{**asked, "queries": queries})
    print(f"{queries:6,} answers: sigma {noise.mechanism.sigma:6.1f}")
