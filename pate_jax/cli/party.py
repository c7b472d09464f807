"""`pate party ...`: what each of several owners of records does by itself; `pate merge`: their votes."""

from __future__ import annotations

import json as json_format
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, Positional, Suppress, arg

from pate_jax.accounting import Relation
from pate_jax.accounting.party_statement import PartyStatement
from pate_jax.cli.output import RunPath, say
from pate_jax.models.names import Metric  # noqa: F401 (of a field of DataChoice)
from pate_jax.runs.parties.terms import Terms
from pate_jax.runs.parties.write import Asked
from pate_jax.runs.settings import DataChoice, StudentFlags
from pate_jax.student.settings import Auto


@dataclass(frozen=True)
class OwnData(DataChoice):
    """A party's own records, and the pool that all parties share; no data set by name."""

    dataset: Annotated[str, Suppress] = DataChoice.dataset
    records: Annotated[int | None, Suppress] = None
    data_dir: Annotated[Path | None, Suppress] = None
    manual_dir: Annotated[Path | None, Suppress] = None


def salt(file: Positional[Path]) -> None:
    """Write a fresh salt for `pate party ids`, which one owner makes and all owners share.

    Whoever compares the digests must not have it: with the salt, ids that can be guessed could be tried.

    Args:
        file: the file to write.
    """
    from pate_jax.data import fingerprints

    fingerprints.new_salt(file)
    print(f"{file}: copy it to every other owner, and not to whoever runs `pate merge`")


def ids(
    source: Annotated[Positional[Path], arg(metavar="RUN|VOTES")],
    salt: Path,
    out: Path,
    private: Path | None = None,
    by: Literal["record", "user"] = "record",
    id_column: str | None = None,
    user_column: str | None = None,
) -> None:
    """Write salted digests of the ids whose teachers voted, so that nobody is with two owners (`pate merge`).

    Args:
        source: the run directory whose teachers voted, or a votes file made elsewhere.
        salt: the salt that all owners share (`pate party salt`).
        out: the file to write, for whoever runs `pate merge`.
        private: for a votes file: the private records, a table (.csv, .parquet, .xlsx) or an .npz.
        by: for a votes file: whether ids are of records or of users; a run knows.
        id_column: column of a table that holds the record's id.
        user_column: column of a table that holds the user's id.
    """
    from pate_jax.runs.parties import merged_votes

    files = merged_votes.Private(private, by, id_column, user_column)
    found = merged_votes.identify(source, files, salt=salt, out=out)
    print(f"{out}: digests of {len(found.digests):,} {found.by} ids")


def certificate(
    name: Positional[str],
    voters: int,
    host: str = "localhost",
    port: int = 7000,
    out: Path = Path(),
) -> None:
    """Make this party's key and the card that goes into the agreement.

    The key stays with the party. The card is public: give it to whoever runs `pate party init`.

    Args:
        name: the name of this party.
        voters: how many voters it has: the exact number of teachers, or an upper limit of records or users.
            The number is public.
        host: where the other parties reach it.
        port: the port that it listens on while a vote is held.
        out: the folder for NAME.key.pem and NAME.card.json.
    """
    from pate_jax.runs.parties.terms import make

    key, card = make(out, name, host, port, voters)
    print(f"{key}: keep it; whoever has it can take part as {name}")
    print(f"{card}: give it to whoever runs `pate party init`")


def init(
    file: Annotated[Positional[Path], arg(metavar="AGREEMENT")],
    cards: tuple[Path, ...],
    data: Annotated[OwnData, OmitArgPrefixes],
    terms: Annotated[Terms, OmitArgPrefixes],
    asked: Annotated[Asked, OmitArgPrefixes],
    name: str = "",
    json: bool = False,
) -> None:
    """Write the agreement that all parties vote under: who takes part, what is asked, and how much noise.

    The noise is the least that keeps every audience within --epsilon: outsiders, each party, and as many
    colluding parties as you allow. No private record is read beyond a check that the files fit. Every party
    gets the agreement and the file of questions beside it.

    Args:
        file: the agreement to write (.toml); the questions are written beside it (.npz).
        cards: the cards of all parties (`pate party certificate`).
        data: this party's data; only the public part is used.
        terms: what the parties choose.
        asked: what is asked.
        name: a name for people; unset: that of the file.
        json: print one JSON object.
    """
    from pate_jax.accounting import parties
    from pate_jax.runs.parties import write
    from pate_jax.runs.parties.join import questions_beside

    made, seen = write.write(file, name or file.stem, cards, data, terms, asked)
    if json:
        say({"agreement": made.digest, "audiences": [one._asdict() for one in seen]}, json)
        return
    print(parties.text(seen, made.delta, made.unit), end="")
    print(f"{file} and {questions_beside(file)}: give both to all parties; each then runs")
    print(f"  pate party join {file} --key NAME.key.pem --private OWN --public POOL ... --out RUN")


def join(
    agreement: Positional[Path],
    key: Path,
    data: Annotated[OwnData, OmitArgPrefixes],
    out: Path,
    register: Path | None = None,
    transcript: Path | None = None,
    prepare: bool = False,
    seed: int | None = None,
    json: bool = False,
) -> None:
    """Take part in a vote: train this party's voters, vote with all others, and keep what was opened.

    All parties run this within the agreement's time limit. A vote that was stopped goes on when all repeat
    the command: with the same ballot, the same noise and the same parties, charged once. One with a
    threshold that was begun is not repeated.

    Args:
        agreement: the agreement (.toml), with the file of questions beside it.
        key: this party's key (`pate party certificate`).
        data: this party's private records, and the public pool that all parties share.
        out: this party's run directory.
        register: the file in which all runs on these records are entered; a vote beyond its limit is refused
            before anything is sent. Unset: this user's own; none: somebody else counts (`pate budget`).
        transcript: take the result from another party's transcript.json, where this party was stopped after
            the vote.
        prepare: train or count this party's voters and stop before anything is charged or sent, so that all
            can join at an agreed time later.
        seed: make this party's noise reproducible and therefore NOT private.
        json: print one JSON object.
    """
    from pate_jax.runs.parties import join as joining

    member, secret = joining.of_party(agreement, key, data, out, seed=seed)
    if prepare:
        rows = joining.prepare(member)
        print(
            f"{out}: the voters have answered {rows:,} questions; join without --prepare when all are ready"
        )
        return
    if transcript is not None:
        made = joining.receive(member, transcript)
    else:
        made = joining.join(member, secret, joining.connected, register)
    _finish(made, out, json)


def student(run: RunPath, config: Annotated[StudentFlags, arg(name="")] = Auto(), json: bool = False) -> None:  # noqa: B008
    """Train a student on what the parties have opened together, and write release/.

    Args:
        run: the run directory of a party (`pate party join`).
        config: how the student learns.
        json: print one JSON object.
    """
    from pate_jax.runs.directory import RunDirectory
    from pate_jax.runs.parties.join import teach

    directory = RunDirectory(run)
    with directory.writing():
        say(teach(directory, config), json)


def _finish(made: PartyStatement, out: Path, json: bool) -> None:
    from pate_jax.runs import publication, registration
    from pate_jax.runs.directory import RunDirectory

    run = RunDirectory(out)
    trial, shown = publication.trial(run), registration.shown(run)
    if json:
        facts: dict[str, Any] = {**trial, **made.publishable(), **shown}
        say(facts, json)
        return
    print(made.text())
    print(f"{out / 'transcript.json'}: equal in all parties. Next: pate party student {out}")
    if shown:
        print(shown["register"]["text"])
    print(*(f"{line}\n" for line in trial.values()), sep="", end="")


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
