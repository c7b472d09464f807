"""How right a crowd is expected to be that votes in two rounds, the second in the space of a student.

A small net stands in for the student between the rounds, whose training takes minutes on images: it has one
hidden layer on the first directions of the space and learns what the first round says of public inputs. That
layer is the second round's space. As in a run, one voter in ten is held out, and each round costs half.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from pate_jax.crowd import rehearsal
from pate_jax.crowd.plan import Kind, plan
from pate_jax.crowd.rehearsal import Expected, Places
from pate_jax.crowd.roles import Labels, Rows, assigned
from pate_jax.models import spaces
from pate_jax.models.spaces.space import Space

HELD_OUT = 10  # of so many voters one votes in no table
_SEEN, _HIDDEN = 100, 64  # directions, and entries of the layer
_STEPS, _BATCH, _RATE = 400, 256, 3e-3
_TAUGHT = 3000  # public inputs, at most
_RULE = optax.adam(_RATE)


class Net(NamedTuple):
    """One hidden layer, and the scores of classes."""

    inside: Float[Array, "seen hidden"]
    bias: Float[Array, " hidden"]
    outside: Float[Array, "hidden classes"]

    def layer(self, seen: Float[Array, "n seen"]) -> Float[Array, "n hidden"]:
        """What the scores are linear in."""
        return jax.nn.relu(seen @ self.inside + self.bias)


def rehearse(
    kind: Kind,
    space: Space,
    public: Places,
    labels: Sequence[Labels],
    *,
    voters: int,
    classes: int,
    mu: float,
    users: Labels | None = None,
    draws: int = rehearsal.FEW_DRAWS,
) -> Expected:
    """What two rounds of a crowd are expected to bring that cost `mu` together, with each of these labels."""
    voting, share = max(1, voters - voters // HELD_OUT), mu / math.sqrt(2)
    roles = assigned(len(public), voting, users)
    taught, random = roles.voting[:_TAUGHT], rehearsal.drawing()

    def asked(there: Space, places: Places, rows: Rows) -> rehearsal.Guess:
        made = plan(kind, there, places, voters=voting, classes=classes, mu=share, users=users)
        return rehearsal.guesser(made, places, roles, rows, random)

    first = asked(space, public, np.concatenate([roles.judged, taught]))
    seen = _evened(public)

    def guessed(each: Labels) -> rehearsal.Shares:
        told, answers = np.split(first(each).astype(np.float32), [len(roles.judged)])
        layer = np.asarray(_layer(seen, seen[taught], answers))
        there = spaces.learn("identity", layer)
        again = asked(there, there.coordinates(layer), roles.judged)(each)
        return np.asarray((told + again) / 2)

    return rehearsal.judged([[guessed(each) for _ in range(draws)] for each in labels], labels, roles)


def _evened(public: Places) -> Float[np.ndarray, "pool seen"]:
    """The first coordinates, faint ones less far behind the strong ones, about 1 long each."""
    some = (public - public.mean(0))[:, :_SEEN].astype(np.float32)
    weighed = some * np.maximum(some.std(0), 1e-6) ** -0.5
    return np.asarray(weighed / np.sqrt(np.maximum((weighed**2).mean(), 1e-12)))


@jax.jit
def _layer(
    pool: Float[Array | np.ndarray, "pool seen"],
    seen: Float[Array | np.ndarray, "taught seen"],
    told: Float[Array | np.ndarray, "taught classes"],
) -> Float[Array, "pool hidden"]:
    """The hidden layer of all inputs, by a net that has learned what is told of some."""
    wide, classes = seen.shape[1], told.shape[1]
    drawn = jax.random.normal(jax.random.key(0), (wide, _HIDDEN)) * math.sqrt(2 / wide)
    net = Net(drawn, jnp.zeros(_HIDDEN), jnp.zeros((_HIDDEN, classes)))
    seen, told = jnp.asarray(seen), jnp.asarray(told)

    def loss(net: Net, batch: Array) -> Array:
        scores = net.layer(seen[batch]) @ net.outside
        return optax.softmax_cross_entropy(scores, told[batch]).mean()

    def step(state: tuple[Net, optax.OptState], key: Array) -> tuple[tuple[Net, optax.OptState], None]:
        net, held = state
        slope = jax.grad(loss)(net, jax.random.randint(key, (_BATCH,), 0, len(seen)))
        change, held = _RULE.update(slope, held)
        return (net._replace(**optax.apply_updates(net, change)._asdict()), held), None

    keys = jax.random.split(jax.random.key(1), _STEPS)
    (net, _), _ = jax.lax.scan(step, (net, _RULE.init(net)), keys)
    return net.layer(jnp.asarray(pool))
