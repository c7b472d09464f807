# %% [markdown]
# # Votes from elsewhere
#
# Teachers may be anything that was made from one shard of the records each: here scikit-learn models, below
# a language model. They enter by their votes.

# %%
import hashlib
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.tree import DecisionTreeClassifier

from pate_jax import accounting, aggregate, load_votes, save_votes, voting
from pate_jax.mechanisms import DiscreteGaussianMax

inputs, labels = load_digits(return_X_y=True)
private, public, teachers = slice(1500), slice(1500, 1600), 20

# %% [markdown]
# ## One teacher for each record, by its id
#
# A keyed hash of the id places a record, whatever the other records are. So one record moves one teacher.

# %%
secret = b"kept secret"
digests = [hashlib.blake2b(f"digit-{n}".encode(), key=secret, digest_size=8).digest() for n in range(1500)]
shard = np.array([int.from_bytes(digest, "big") % teachers for digest in digests])
models = [
    DecisionTreeClassifier(random_state=0).fit(inputs[private][shard == t], labels[private][shard == t])
    for t in range(teachers)
]
teacher_labels = np.stack([model.predict(inputs[public]) for model in models]).astype(np.int16)

# %% [markdown]
# ## A language model as teachers
#
# Give each teacher's prompt the examples of its own shard only, and turn what it says into a class. What
# cannot be read counts for a class that is fixed in advance, so that every teacher votes on every query.

# %%
CLASSES = ["negative", "positive"]


def class_of(reply: str, otherwise: int = 0) -> int:
    """The first class that a reply names."""
    places = {
        reply.lower().find(name): number for number, name in enumerate(CLASSES) if name in reply.lower()
    }
    return places[min(places)] if places else otherwise


assert [class_of(reply) for reply in ("Positive.", "It is negative, not positive", "no idea")] == [1, 0, 0]

# %% [markdown]
# ## Votes into a file, and out of it
#
# `pate aggregate votes.npz ... --relation record` goes on from here, and `pate student` trains on the
# answers.

# %%
file = Path(tempfile.mkdtemp()) / "votes.npz"
asked = np.array([f"digit-{number}" for number in range(1500, 1600)])
save_votes(
    file, voting.Votes(np.asarray(voting.histogram(teacher_labels, classes=10)), teacher_labels, asked, None)
)
votes = load_votes(file).votes
assert votes.sum(axis=1).tolist() == [teachers] * 100

# %% [markdown]
# ## What answering would cost, before anything is answered

# %%
mechanism = DiscreteGaussianMax(sigma=6.0)
statement = accounting.statement(mechanism, votes, None, 1e-5, pld=False, private=True)
print(statement.text())
answers = aggregate.answer(mechanism, votes, key=aggregate.fresh_key())
print(f"{np.mean(np.asarray(answers.labels) == labels[public]):.0%} of the answers are right")
assert np.asarray(answers.labels).shape == (100,)
