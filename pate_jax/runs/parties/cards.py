"""A party's key, which it keeps, and its card, which it gives to whoever writes the agreement."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pate_jax.errors import PateError
from pate_jax.parties import certificates
from pate_jax.parties.agreement import Agreement, Party
from pate_jax.system import storage

KIND = "party"


class Card(NamedTuple):
    """What a party tells all others of itself."""

    name: str
    host: str
    port: int
    voters: int  # teachers: exactly so many; neighbours and sums: no more than so many
    certificate: str


def make(folder: Path, name: str, host: str, port: int, voters: int) -> tuple[Path, Path]:
    """Write a fresh key and the card of its certificate; the paths of the two are returned."""
    key, card = folder / f"{name}.key.pem", folder / f"{name}.card.json"
    for path in (key, card):
        if path.exists():
            raise PateError(f"{path} exists: a party keeps its key; name another --out to make a new one")
    identity = certificates.make(name)
    made = Card(name, host, port, voters, identity.certificate)
    Party(name, host, port, identity.certificate, voters)  # refuses what an agreement would refuse
    storage.write_bytes(key, identity.key.encode(), mode=0o600)
    storage.write_json(card, KIND, made._asdict())
    return key, card


def read(path: Path) -> Card:
    """The card that `make` wrote."""
    body = storage.read_json(path, KIND)
    if set(body) != set(Card._fields):
        raise PateError(f"{path} holds {', '.join(sorted(body))}, and a card holds {', '.join(Card._fields)}")
    return Card(**body)


def own_name(agreement: Agreement, key: str) -> str:
    """The party of an agreement that has this secret key."""
    probe = agreement.digest.encode()
    signed = certificates.sign(key, probe)
    for party in agreement.parties:
        if certificates.verify(party.certificate, probe, signed):
            return party.name
    raise PateError(
        f"the key belongs to none of the parties of {agreement.name!r} ({', '.join(agreement.names)}): give "
        "the key whose card went into the agreement"
    )
