"""Who takes part in a session: settled once, before any of them sends a vote."""

from __future__ import annotations

import hmac
import itertools
import json
from typing import Any

from pate_jax.parties import engine
from pate_jax.parties.agreement import Agreement
from pate_jax.parties.connections import KEYS, PRESENT, Hub, Refusal


async def settle(hub: Hub, wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    """Who is present: the first party that is here says it, and all who are named must agree.

    The vote begins without those who did not come in time if the agreement lets so many drop out.
    """
    agreement, order = hub.agreement, hub.agreement.names
    await hub.until(lambda: hub.knows(wanted or order) or hub.told(), agreement.seconds)
    here = tuple(name for name in order if name in hub.nonces)
    first = here[0]
    if first == hub.name:
        named = here
        for peer in hub.peers.values():
            peer.send(PRESENT, json.dumps(here).encode())
    else:
        await hub.until(lambda: PRESENT in hub.peers[first].buffers, agreement.seconds)
        named = _named(hub, first)
    missing = [name for name in order if name not in named]
    _check_missing(hub, missing, wanted)
    if hub.name not in named or not await hub.until(lambda: hub.knows(named), agreement.seconds):
        raise Refusal("the parties do not see one another alike: start the vote again, all of you")
    hub.settled = True
    return named


def _named(hub: Hub, first: str) -> tuple[str, ...]:
    """The parties that the first one named."""
    content = hub.peers[first].buffers.pop(PRESENT, b"[]")
    try:
        found = [str(name) for name in json.loads(content)]
    except (ValueError, TypeError):
        found = []
    return tuple(name for name in hub.agreement.names if name in found)


def _check_missing(hub: Hub, missing: list[str], wanted: tuple[str, ...] | None) -> None:
    agreement = hub.agreement
    allowed = len(missing) <= agreement.dropouts
    if wanted is not None:
        allowed = tuple(name for name in agreement.names if name not in missing) == wanted
        missing = [name for name in missing if name in wanted] or missing
        if not allowed and not missing:
            new = ", ".join(name for name in agreement.names if name not in wanted)
            raise Refusal(f"{new} came, and this vote was begun without: start it again, all but {new}")
    if not allowed:
        rule = "this repeated vote needs the same parties" if wanted else _may_drop(agreement)
        raise Refusal(
            f"{', '.join(missing)} did not come within {agreement.seconds:g} seconds"
            f"{_reasons(hub, missing)}, and {rule}: start the vote again when all are ready"
        )


def _reasons(hub: Hub, missing: list[str]) -> str:
    """What is known of why parties did not come."""
    if hub.hung_up & {*missing}:
        return f" (hung up on the certificate of {hub.name}: compare fingerprints)"
    if known := [hub.unreached[name] for name in missing if name in hub.unreached]:
        return f" ({'; '.join(known)})"
    return ""


def _may_drop(agreement: Agreement) -> str:
    return f"the agreement lets {agreement.dropouts} drop out"


async def runtime(hub: Hub, present: tuple[str, ...], key: str) -> Any:
    """MPyC's runtime of the parties that are present, with the keys of their shared randomness.

    Each key is of a set of parties, whose first member makes it and gives it to the others. MPyC's are fresh
    in every session. Those of the orders in which ties are broken are the same whenever a vote is repeated:
    another order would open another of two equal classes, and so show that they are equal.
    """
    own = present.index(hub.name)
    found = engine.make(own, len(present), hub.agreement.colluders, hub.loop)
    sets = list(itertools.combinations(range(len(present)), len(present) - hub.agreement.colluders))
    found.orders = {one: _order_key(hub, present, one, key) for one in sets if one[0] == own}
    for index, name in enumerate(present):
        if index != own:
            found.parties[index].protocol = hub.peers[name]
            orders = [found.orders[one] for one in sets if one[0] == own and index in one]
            hub.peers[name].send(KEYS, b"".join([*found._prss_keys_to_peer(index), *orders]))
    for name in [name for name in hub.peers if name not in present]:
        hub.peers.pop(name).refuse(f"{name} came too late: the vote began without it")
    for index, name in enumerate(present):
        if index != own:
            theirs = [one for one in sets if one[0] == index and own in one]
            _take_keys(found, index, theirs, (await found.gather([hub.peers[name].receive(KEYS)]))[0], name)
    return found


def _order_key(hub: Hub, present: tuple[str, ...], members: tuple[int, ...], key: str) -> bytes:
    """A key that only this party can make, and makes again for the same vote of the same parties."""
    words = json.dumps(["order of classes", hub.agreement.digest, present, members])
    return hmac.digest(key.encode(), words.encode(), "sha256")


def _take_keys(found: Any, index: int, sets: list[tuple[int, ...]], content: bytes, name: str) -> None:
    """Keep the keys that a party made for sets in which both are."""
    size = found._prss_keys_from_peer(index)
    if len(content) != size + 32 * len(sets):
        raise Refusal(f"{name} sent keys of another length: install the same version everywhere")
    found._prss_keys_from_peer(index, content[:size])
    for number, one in enumerate(sets):
        found.orders[one] = content[size + 32 * number : size + 32 * (number + 1)]
