"""The votes of several owners in one file, for owners who trust one aggregator.

votes.npz         the histograms of all owners' teachers together; private
certificate.json  which files they come from, by digests, and that no record or user is in two of them

The certificate says whom a run on such votes can cover. An owner's teachers change together, so the whole
vote of an owner is one vote only if it has one teacher. A group of g teachers would cost g^2 times as much
(docs/proofs/parties.md), and one teacher of all the owner's records serves better. So the relation `party`
is of owners that have one teacher each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pate_jax import voting
from pate_jax.accounting import RELATIONS, Relation
from pate_jax.data import fingerprints, ids, partition, tables
from pate_jax.data.fingerprints import Fingerprints
from pate_jax.errors import PateError
from pate_jax.runs import directory, inputs
from pate_jax.runs.record import refuse_crowd
from pate_jax.system import progress, storage
from pate_jax.voting import Votes
from pate_jax.voting.merge import merge

VOTES = "votes.npz"
_COVERED = {"record": ("record",), "contents": ("record", "contents"), "user": ("user",)}  # by which ids


class Private(NamedTuple):
    """Where the ids of private records are, for votes made elsewhere."""

    file: Path | None = None
    by: str = "record"
    id_column: str | None = None
    user_column: str | None = None


def join(files: Sequence[Path], owners: Sequence[Path], relation: Relation, out: Path) -> dict[str, Any]:
    """Merge the owners' votes into a folder, if their ids do not overlap; its certificate is returned.

    `owners` are the files of fingerprints, in the order of the votes. With the relation `party` none are
    read, because then nothing is promised about a person whom two owners know; each owner has one teacher.
    """
    names = [str(file) for file in files]
    parts = [voting.load_votes(file) for file in files]
    whole = merge(parts, names)
    digests = [storage.digest(part.votes) for part in parts]
    checked = _checked(names, digests, owners, relation)
    teachers = [int(part.votes[0].sum()) for part in parts]
    if relation == "party":
        check_teachers(names, teachers)
    made = {
        "relation": relation,
        "votes": storage.digest(whole.votes.astype(np.int32)),  # as they are stored
        "queries": storage.digest(whole.ids, whole.digests),
        "salt": checked[0].salt if checked else None,
        "owners": [
            {"votes": digest, "teachers": number, "ids": ids}
            for digest, number, ids in zip(digests, teachers, _counts(checked, len(parts)), strict=True)
        ],
    }
    path = out / CERTIFICATE
    if path.exists() and storage.read_json(path, KIND) != made:
        raise PateError(f"{out} holds the votes of other files: choose another --out")
    directory.close(out)
    voting.save_votes(out / VOTES, whole)
    storage.write_json(path, KIND, made, mode=0o600)
    return made


def _counts(checked: Sequence[Fingerprints], owners: int) -> list[int | None]:
    return [len(one.digests) for one in checked] if checked else [None] * owners


def _checked(
    names: Sequence[str], digests: Sequence[str], owners: Sequence[Path], relation: Relation
) -> list[Fingerprints]:
    """The owners' fingerprints, refused where they do not show that the owners share no id."""
    if relation not in RELATIONS:
        raise PateError(f"relation={relation!r} must be one of {', '.join(RELATIONS)}")
    if relation == "party":
        if owners:
            raise PateError(
                "--relation party covers an owner's whole vote, whoever it knows: leave out --ids"
            )
        return []
    if len(owners) != len(names):
        raise PateError(
            f"{len(owners)} files of ids are given for {len(names)} votes files: --relation "
            f"{relation} holds only if no id is with two owners; let each owner write its digests by `pate "
            "party ids`, and give them with --ids in the order of the votes"
        )
    found = [fingerprints.load(path) for path in owners]
    for name, digest, path, one in zip(names, digests, owners, found, strict=True):
        _check_belongs(name, digest, path, one, relation)
        if one.salt != found[0].salt:
            raise PateError(
                f"{owners[0]} and {path} were made with two salts, so equal ids look different: let all "
                "owners use one salt file, and write the digests again"
            )
    _check_apart(names, found)
    return found


def _check_apart(names: Sequence[str], found: Sequence[Fingerprints]) -> None:
    """Refuse owners who share ids. Row numbers name nobody, so they are not compared."""
    if without := [name for name, one in zip(names, found, strict=True) if one.by == "contents"]:
        progress.warn(
            f"the ids behind {', '.join(without)} are row numbers, so nobody can tell whether people there "
            "are with other owners too; what the votes promise holds if nobody is"
        )
    named = [(name, one) for name, one in zip(names, found, strict=True) if one.by != "contents"]
    for first, second, both in fingerprints.overlaps([one for _, one in named]):
        raise PateError(
            f"{named[first][0]} and {named[second][0]} share {both} {found[0].of} id{'s' * (both > 1)}, and "
            "whoever is with two owners moves two votes: let one of them leave these out and vote again"
        )


def _check_belongs(name: str, digest: str, path: Path, one: Fingerprints, relation: str) -> None:
    if one.votes != digest:
        raise PateError(
            f"{path} was made for other votes than those in {name}: give --ids in the order of the votes, or "
            f"let the owner write it again by `pate party ids` with {name}"
        )
    if one.by in _COVERED[relation]:
        return
    if one.by == "contents":
        raise PateError(
            f"{path} holds row numbers, and a record that is removed renumbers the others, so that they "
            f"change teachers: --relation {relation} does not hold; declare --relation contents"
        )
    by = _COVERED[relation][0]
    raise PateError(
        f"{path} holds ids of {one.of}s, and --relation {relation} is about {by}s: let the owner write it "
        f"again with --by {by}"
    )


def identify(source: Path, private: Private, *, salt: Path, out: Path) -> Fingerprints:
    """Write the fingerprints of whoever took part in a run's votes, or in a file of votes made elsewhere."""
    if source.is_dir():
        if private.file is not None:
            raise PateError(f"{source} is a run, which knows its private records: leave out --private")
        run = directory.RunDirectory(source)
        settings = run.record.read()
        refuse_crowd(settings, run.root)
        found = partition.units_of(inputs.open(run).dataset.private, settings.partition.by)
        by: str = settings.relation or settings.partition.by
        votes = run.existing(run.votes, "vote")
    else:
        found, by, votes = _ids_of(private), private.by, source
    counted = storage.digest(voting.load_votes(votes).votes)
    made = fingerprints.made(found, by=by, salt=fingerprints.read_salt(salt), votes=counted)
    fingerprints.save(out, made)
    return made


def _ids_of(private: Private) -> np.ndarray:
    """The ids of the records, or of their users, in a table or an .npz."""
    if private.file is None:
        raise PateError("--private is missing: name the file of the private records whose teachers voted")
    role = "ids" if private.by == "record" else "users"
    if private.file.suffix == ".npz":
        found: Mapping[str, Any] = storage.read_foreign_arrays(private.file)
        name = role
    else:
        given = private.id_column if private.by == "record" else private.user_column
        if given is None:
            flag = "--id-column" if private.by == "record" else "--user-column"
            raise PateError(f"{private.file} is a table: name the column of the {role} with {flag}")
        found, name = tables.read(private.file), given
    if name not in found:
        raise PateError(f"{private.file} has no {name!r}; it holds {', '.join(sorted(found))}")
    if isinstance(found, tables.Table):
        return ids.of_table(found, name, str(private.file))
    return ids.of_values(found[name], name, str(private.file))


KIND, CERTIFICATE = "votes-of-owners", "certificate.json"
Certificate = Mapping[str, Any]


def beside(file: Path) -> Certificate | None:
    """The certificate that `pate merge` wrote beside a votes file; None where there is none.

    >>> beside(Path("nowhere/votes.npz")) is None
    True
    """
    path = file.resolve().parent / CERTIFICATE
    if not path.exists():
        return None
    body = storage.parse_json(storage.read_bytes(path), path)
    return storage.read_json(path, KIND) if body.get("artefact") == KIND else None


def check_teachers(names: Sequence[str], teachers: Sequence[int]) -> None:
    """Refuse to promise something to an owner that moves many votes of a query.

    >>> check_teachers(["A", "B"], [1, 1])
    """
    for name, number in zip(names, teachers, strict=True):
        if number != 1:
            raise PateError(
                f"{name} has {number} teachers, and --relation party covers an owner's whole vote, which is "
                f"{number} votes on each query: let each owner train one teacher on all of its records, or "
                "compare ids and declare --relation record, user or contents"
            )


def check(certificate: Certificate, relation: str | None, votes: Votes) -> None:
    """Refuse a declaration that the certificate of these votes does not cover."""
    teachers = int(votes.votes.sum(1).max(initial=0))
    for fault in faults(certificate, relation, storage.digest(votes.votes), teachers):
        raise PateError(f"{fault}; whom joined votes cover is settled by `pate merge`")


def faults(certificate: Certificate, relation: str | None, digest: str, teachers: int) -> Iterator[str]:
    """Why votes of this digest cannot be answered under a relation."""
    try:
        named, compared = certificate["relation"], certificate["relation"] == "party" or certificate["salt"]
        numbers = [owner["teachers"] for owner in certificate["owners"]]
        yours, together = certificate["votes"], sum(numbers)
    except (KeyError, TypeError) as error:
        yield f"the certificate of the joined votes is damaged ({error!r})"
        return
    if yours != digest:
        yield "the certificate beside the votes is of other votes: each has a folder of its own"
    if named != relation:
        yield f"the votes were joined under --relation {named}, and the run declares {relation}"
    if not compared:
        yield f"no ids of the owners were compared, and --relation {named} holds only if none is with two"
    if named == "party" and set(numbers) != {1}:
        yield f"the owners have {numbers} teachers, and --relation party is of owners that have one each"
    if together != teachers:
        yield f"the owners have {together} teachers together, and {teachers} voted"
