"""`pate merge`: the votes of several owners in one file, for an aggregator whom all of them trust."""

from __future__ import annotations

import json as json_format
import shlex
from pathlib import Path

from tyro.conf import Positional

from pate_jax.accounting import Relation


def merge(
    votes: Positional[tuple[Path, ...]],
    relation: Relation,
    out: Path,
    ids: tuple[Path, ...] = (),
    json: bool = False,
) -> None:
    """Join the votes files of several owners who asked their own teachers the same queries.

    Whoever runs this sees all votes, and must be trusted by all owners. `pate aggregate` answers the joined
    votes as it answers those of one owner.

    Args:
        votes: the votes file of each owner.
        relation: what moves one vote at most, by the word of all owners: one record under its id, all records
            of one user, the contents of one record, or an owner's whole vote if each has one teacher.
        out: the folder for votes.npz and certificate.json; both are private.
        ids: the owners' salted digests of their ids (`pate party ids`), in the order of the votes: nobody may
            be with two owners. Not read with --relation party.
        json: print one JSON object.
    """
    from pate_jax.runs.parties import merged_votes

    made = merged_votes.join(votes, ids, relation, out)
    if json:
        print(json_format.dumps(made))
        return
    teachers = sum(owner["teachers"] for owner in made["owners"])
    print(f"{out / merged_votes.VOTES}: {teachers:,} teachers of {len(made['owners'])} owners")
    answered = ["pate", "aggregate", str(out / merged_votes.VOTES), "MECHANISM", "--relation", relation]
    print(f"next: {shlex.join([*answered, '--out', 'RUN'])}")
