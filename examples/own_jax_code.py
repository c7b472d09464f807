# %% [markdown]
# # Your own JAX code
#
# `voting.histogram` counts labels and `aggregate.answer` adds noise and picks; both work under `jit`,
# `vmap` and `shard_map`, and load no training library. A mechanism is a frozen description that the
# accountant reads too.

# %%
import jax
import jax.numpy as jnp
import numpy as np

from pate_jax import accounting, aggregate, voting
from pate_jax.mechanisms import ConfidentDiscreteGaussian, DiscreteGaussianMax

# %% [markdown]
# ## Labels to answers, in one program
#
# Thirty teachers label forty queries. The key is fixed here, which makes an example that can be repeated
# and is **not** private; `aggregate.fresh_key()` is the one to use.

# %%
random = np.random.default_rng(0)
truth = random.integers(0, 5, 40)
right = random.random((30, 40)) < 0.9
labels = np.where(right, truth, random.integers(0, 5, (30, 40))).astype(np.int16)  # [teacher, query]
mechanism = ConfidentDiscreteGaussian(threshold=20, sigma_threshold=3.0, sigma=2.0)


@jax.jit
def answers_to(labels, key):
    votes = voting.histogram(labels, classes=5)
    return votes, aggregate.answer(mechanism, votes, key=key)


votes, answers = answers_to(labels, aggregate.seeded_key(0))
answered = np.asarray(answers.answered)
hits = np.asarray(answers.labels)[answered] == truth[answered]
print(f"{answered.sum()} of 40 answered, {hits.mean():.0%} of them right")
assert answered.any()

# %% [markdown]
# ## What it costs
#
# The accountant takes the same mechanism and the same votes. The key above came from a seed, so the statement
# is of answers that are not private, and says so first.

# %%
statement = accounting.statement(mechanism, np.asarray(votes), answered, 1e-5, pld=False, private=False)
print(statement.text())
assert statement.text().startswith("NOT PRIVATE")
assert statement.figures["data_independent"].status == "publishable"

# %% [markdown]
# ## Many settings at once
#
# Mechanisms are pytrees: stack settings with `prepare` and map over them. One key gives all settings one
# draw; do that only on votes that you may look at.

# %%
sigmas = np.array([1.0, 5.0, 25.0])
settings = aggregate.prepare([DiscreteGaussianMax(sigma) for sigma in sigmas])
key = aggregate.seeded_key(1)
per_setting = jax.jit(jax.vmap(lambda setting: aggregate.answer(setting, votes, key=key).labels))(settings)
agreement = jnp.mean(per_setting == votes.argmax(1), axis=1)
for sigma, share in zip(sigmas, agreement, strict=True):
    print(f"sigma {sigma:4}: {share:.0%} agree with the plurality")
assert per_setting.shape == (3, 40) and agreement[0] > agreement[-1]
