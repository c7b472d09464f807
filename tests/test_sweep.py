"""The sweep: each row is what the setting would answer and cost by itself."""

import numpy as np

from pate_jax import accounting, noise
from pate_jax.mechanisms import ConfidentGNMax, GNMax, to_dict
from pate_jax.sweep import sweep
from pate_jax.voting import Votes


def test_rows_agree_with_the_accountant_and_the_votes():
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 40)
    votes = np.array(
        [np.bincount(np.append(random.integers(0, 3, 30), [label] * 70), minlength=3) for label in labels]
    )
    settings = [GNMax(5.0), GNMax(400.0), ConfidentGNMax(60, 5.0, 5.0), ConfidentGNMax(99, 1.0, 5.0)]
    rows = sweep(settings, Votes(votes, None, None, labels), 1e-5, key=noise.seeded_key(1))
    assert [row["mechanism"] for row in rows] == [to_dict(setting) for setting in settings]
    assert [row["answered"] for row in rows] == [40, 40, 40, 0]
    assert rows[0]["label_accuracy"] == 1.0 and rows[1]["label_accuracy"] < 0.75
    assert rows[3]["label_accuracy"] is None
    for row, setting in zip(rows, settings, strict=True):
        assert row["published"] == accounting.published(setting, votes, 1e-5).epsilon
    assert rows[1]["data_independent"] < rows[0]["data_independent"]
