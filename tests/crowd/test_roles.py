"""Who stands for voters in a rehearsal: users with all of their public inputs, where users vote."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate_jax import crowd
from pate_jax.accounting.exact import counts
from pate_jax.aggregate import noise
from pate_jax.crowd import rehearsal, shares
from pate_jax.crowd.plan import weight_of_users
from pate_jax.crowd.roles import assigned
from pate_jax.data import Part
from pate_jax.models import spaces
from pate_jax.models.spaces import Learned
from pate_jax.runs.crowds import forecast

CLASSES, EACH = 3, 12  # records of a user
CENTRES = np.random.default_rng(5).normal(size=(CLASSES, 8))


def drawn(users):
    """Users whose records are of all classes, in any order of them."""
    random = np.random.default_rng(users)
    labels = random.integers(0, CLASSES, users * EACH)
    places = CENTRES[labels] + random.normal(size=(len(labels), 8))
    names = np.array([f"u{row % users}" for row in range(len(labels))])
    return places, labels.astype(np.int32), names


@given(st.lists(st.integers(0, 9), min_size=2, max_size=60), st.integers(0, 500))
def test_no_user_is_judged_and_votes(users, voters):
    users = np.array(users)
    roles = assigned(len(users), voters, users)
    assert len(roles.judged) and not roles.times[roles.judged].any()
    if len(np.unique(users)) == 1:
        assert roles.users is None and roles.times.sum() == voters
        return
    assert roles.voters == voters and roles.judges == len(np.unique(users[roles.judged]))
    assert not set(users[roles.judged]) & set(users[roles.voting])
    for user in np.unique(users):
        assert len(np.unique(roles.times[users == user])) == 1
    assert len(roles.judged) <= len(users) // 2 or roles.judges == 1


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", ["sums", "neighbours"])
def test_what_is_rehearsed_is_the_table_of_such_users(kind, classes, monkeypatch):
    """Without noise, and of public inputs that are repeated as often as they stand for voters."""
    places, labels, names = drawn(40)
    labels, users = labels % classes, np.unique(names, return_inverse=True)[1]
    space = spaces.learn("identity", places)
    made = crowd.plan(kind, space, space.coordinates(places), voters=300, classes=classes, mu=3.0)
    roles = assigned(len(places), 300, users)
    seen = []
    monkeypatch.setattr(rehearsal, "_noisy", lambda table, *_: seen.append(table.astype(np.int64)) or seen[0])
    rehearsal.guesser(made, space.coordinates(places), roles, roles.judged, rehearsal.drawing())(labels)
    rows = np.repeat(np.arange(len(places)), roles.times)
    turn = np.concatenate([np.arange(each) for each in roles.times])
    owners = np.array([f"{names[row]} {time}" for row, time in zip(rows, turn, strict=True)])
    part = Part(places[rows], labels[rows], np.arange(len(rows)).astype(str), owners)
    table = crowd.table(made, crowd.voters(part, classes, by="user"))
    assert np.array_equal(seen[0], table)


def test_sums_are_planned_for_what_users_say():
    """Users of many records stand out from noise along more directions than one record of each does."""
    places, _, names = drawn(120)
    users, space = np.unique(names, return_inverse=True)[1], spaces.learn("identity", places)
    settings = {"voters": 120, "classes": CLASSES, "mu": counts.mu_for(0.5, 1e-5)}
    public = space.coordinates(places)
    plain, wide, alone = (
        crowd.plan("sums", space, public, **settings, users=some)
        for some in (None, users, np.arange(len(users)))
    )
    assert wide.release.directions > plain.release.directions == alone.release.directions
    assert wide.release.sigma == plain.release.sigma and wide.release.length == plain.release.length


def test_users_of_many_records_bring_what_is_expected_of_them():
    voters, mu = 400, counts.mu_for(0.3, 1e-5)
    (pool, truth, names), (inputs, labels, owners) = drawn(240), drawn(voters)
    space = spaces.learn("identity", pool)
    public, users = space.coordinates(pool), np.unique(names, return_inverse=True)[1]
    settings = {"voters": voters, "classes": CLASSES, "mu": mu}
    sums = ["sums"]
    found = [
        forecast.of_crowds(sums, Learned(space, public), [truth] * 6, **settings, users=some)[
            sums[0]
        ].accuracy
        for some in (users, None)
    ]
    made = crowd.plan("sums", space, public, **settings, users=users)
    part = Part(inputs, labels, np.arange(len(labels)).astype(str), owners)
    table = crowd.table(made, crowd.voters(part, CLASSES, by="user"))
    right = []
    for seed in range(6):
        noisy = noise.noisy_table(made.release, table, key=noise.seeded_key(seed)).values
        weight = shares.weight(noisy, made.scaling.constant, voters)
        vectors = crowd.vectors(made.scaling, public[:, : len(made.space.variances)])
        model = shares.classifier_of(noisy, made, public, weight)
        right.append((model.judged(vectors).argmax(1) == truth).mean())
    assert abs(found[0] - np.mean(right)) < 0.04
    assert found[1] < found[0] - 0.03, "one record of each user says less"


def test_sums_of_two_classes_are_read_by_the_weight_of_public_users():
    """Without noise, where each record votes, probabilities are nearer to these than where means are read."""
    (pool, _, names), (inputs, labels, owners) = drawn(120), drawn(300)
    space, users = spaces.learn("identity", pool), np.unique(names, return_inverse=True)[1]
    public, halves = space.coordinates(pool), labels % 2
    made = crowd.plan("sums", space, public, voters=300, classes=2, mu=3.0)
    part = Part(inputs, halves, np.arange(len(labels)).astype(str), owners)
    tables = [crowd.table(made, crowd.voters(part, 2, by=by)) for by in ("record", "user")]
    weight = int(300 * weight_of_users(made, public, users))
    read = [(tables[0], len(labels)), (tables[1], weight), (tables[1], 300)]
    alone, weighed, plain = (shares.of_sums(one, made, public, some).probabilities for one, some in read)
    assert np.abs(weighed - alone).mean() < 0.9 * np.abs(plain - alone).mean()
