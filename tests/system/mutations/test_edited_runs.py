"""Honest runs whose files somebody changed, by mistake or to look better: `pate verify` finds each one."""

import json
import os
import re
import shutil
from dataclasses import replace

import honest_runs
import numpy as np
import pytest
from catalogue import edit, is_found

from pate_jax import accounting, voting
from pate_jax.accounting.figures import Figure
from pate_jax.ensemble import checkpoint
from pate_jax.mechanisms import DiscreteGaussianMax, from_dict, to_dict
from pate_jax.models import trees
from pate_jax.runs import batches, budget, chain, ledger, stages
from pate_jax.runs.answers import load_answers, load_asked
from pate_jax.system import storage

CHAIN = ("artefact", "schema", "sequence", "previous", "digest")


def seeded():
    return honest_runs.whole(7)


# ---- ledger


def lines(change):
    def apply(run):
        content = run.ledger.read_bytes().splitlines(keepends=True)
        run.ledger.write_bytes(b"".join(change(content)))

    return apply


def rewrite(run, change):
    """The whole ledger anew, chain and head and all, as only somebody with the program can."""
    bodies = [{name: v for name, v in e.items() if name not in CHAIN} for e in chain.read(run.ledger)]
    run.ledger.unlink()
    chain.head_path(run.ledger).unlink()
    with chain.Writer(run.ledger) as book:
        for body in change(bodies):
            book.append(body)


def rewritten(change):
    return lambda run: rewrite(run, change)


def first_changed(**changes):
    def change(bodies):
        return [{**bodies[0], **{name: new(bodies[0]) for name, new in changes.items()}}, *bodies[1:]]

    return rewritten(change)


def half_the_cost(body):
    return {**body["cost"], "rdp": body["cost"]["rdp"] / 2}


def other_label(body):
    labels, answered = ledger.unpack(body["values"])
    return ledger.pack((labels + 1) % 3, answered)


def other_answers_everywhere(run):
    rewrite(run, lambda bodies: [{**bodies[0], "values": other_label(bodies[0])}])
    labels, answered = ledger.unpack(ledger.read(run.ledger)[0].values)
    storage.write_arrays(run.answers, "answers", {"labels": labels, "answered": answered})


def settings(run, **changes):
    storage.write_json(run.settings, "settings", {**run.record.stages(), **changes})


def more_noise_than_was_drawn(run):
    """Sigma doubled in the settings, the ledger and the statements, the answers as they are."""
    claimed, fixed = DiscreteGaussianMax(40.0), budget.fixed(run)
    settings(run, mechanism=to_dict(claimed))

    def changed(line):
        line = line._replace(event=replace(line.event, mechanism=claimed))
        order, cost = budget.cost_of(fixed, line.event)
        noise = run.secret.commitment(line.stream)
        return {"kind": "release", **to_dict(line._replace(noise=noise, order=order, cost=cost))}

    lines = ledger.read(run.ledger)
    rewrite(run, lambda _: [changed(line) for line in lines])
    stages.account(run)


def a_batch_less(run):
    """The last line dropped and the head put back, as from an older copy."""
    rewrite(run, lambda bodies: bodies[:-1])


def swapped(content):
    return [content[1], content[0]]


def edited_in_place(content):
    return [content[0].replace(b'"asked": 25', b'"asked": 24'), *content[1:]]


def lost_head(run):
    chain.head_path(run.ledger).unlink()


LEDGER = [
    edit("a ledger row dropped", honest_runs.budgeted, lines(lambda rows: rows[:-1]), "end is missing"),
    edit("a ledger row dropped and its head too", honest_runs.budgeted, a_batch_less, "does not show"),
    edit("ledger rows exchanged", honest_runs.budgeted, lines(swapped), "fit the chain"),
    edit("a ledger row edited by hand", honest_runs.budgeted, lines(edited_in_place), "fit the chain"),
    edit("the ledger's head lost", honest_runs.budgeted, lost_head, "head"),
    edit(
        "a ledger of half the cost", honest_runs.budgeted, first_changed(cost=half_the_cost), "it was charged"
    ),
    edit(
        "a ledger of other answers",
        honest_runs.budgeted,
        first_changed(values=other_label),
        "ledger: .*answers",
    ),
    edit(
        "other answers, in every file",
        honest_runs.budgeted,
        other_answers_everywhere,
        "noise: .*do not follow",
    ),
    edit(
        "more noise claimed than was drawn",
        honest_runs.budgeted,
        more_noise_than_was_drawn,
        "noise: .*follow",
    ),
]


# ---- statement


def both(change):
    """Both statements, with their sentences made anew."""

    def apply(run):
        statement = change(run, accounting.Statement.from_dict(storage.read_json(run.statement, "statement")))
        before = storage.read_json(run.public_statement, "statement")["model_card_line"]
        storage.write_json(run.statement, "statement", statement.to_dict())
        for path in (run.public_statement, run.student / "statement.json"):
            if path.exists():
                storage.write_json(path, "statement", statement.publishable())
        for path in (run.public_report, run.student / "MODEL_CARD.md"):
            if path.exists():
                path.write_text(path.read_text().replace(before, statement.model_card_line()))

    return apply


def headline(run, statement, epsilon):
    figure = replace(statement.headline, epsilon=epsilon)
    return replace(statement, figures={**statement.figures, "data_independent": figure})


def expected_sum_for_the_bound(run, statement):
    return headline(run, statement, statement.sums["exact_expected"]["epsilon"])


def stated_of(statement, votes):
    """The statement of these votes in place of those that were asked."""
    mechanism, delta = from_dict(statement.mechanism), statement.delta
    return accounting.statement(mechanism, votes, None, delta, relation=statement.relation, private=True)


def labels_for_row_numbers(run, statement):
    """Only the rows that are named by some label, 0 to 2 here, are analysed, again and again."""
    votes = load_asked(run).votes
    rows = votes.argmax(1)
    return stated_of(statement, votes[rows])


def fewer_teachers_moved(run, statement):
    """A figure for the queries that were answered, in place of all that were asked."""
    votes, answered = load_asked(run).votes, np.asarray(load_answers(run).answered)
    return stated_of(statement, votes[answered])


def by_hand(path_of, pattern, new):
    def apply(run):
        path = path_of(run)
        text, count = re.subn(pattern, new, path.read_text(), count=1)
        assert count == 1
        path.write_text(text)

    return apply


def undeclared(run):
    run.record.revise({}, ["relation"])


def kept_secret(run, statement):
    return replace(statement, private=True)


FIGURES = r'("data_independent": \{\s*"epsilon": )[\d.]+'
STATEMENT = [
    edit(
        "the published statement edited by hand",
        honest_runs.elsewhere,
        by_hand(lambda run: run.public_statement, FIGURES, r"\g<1>0.5"),
        "statement: the published statement differs",
    ),
    edit(
        "the private statement edited by hand",
        honest_runs.elsewhere,
        by_hand(lambda run: run.statement, r'("exact": \{\s*"epsilon": )[\d.]+', r"\g<1>0.25"),
        "statement: the private statement differs",
    ),
    edit(
        "every file of the release with half the epsilon",
        honest_runs.elsewhere,
        both(lambda run, statement: headline(run, statement, statement.headline.epsilon / 2)),
        "release: epsilon .* is published for",
    ),
    edit(
        "the expected sum passed off as the bound",
        honest_runs.elsewhere,
        both(expected_sum_for_the_bound),
        "statement: the published statement differs: .*data_independent",
    ),
    edit(
        "labels passed where row numbers are meant",
        honest_runs.budgeted,
        both(labels_for_row_numbers),
        "statement: the private statement differs: figures.exact",
    ),
    edit(
        "only the answered queries charged",
        seeded,  # and so some queries are refused, always
        both(fewer_teachers_moved),
        "statement: the published statement differs: asked",
    ),
    edit(
        "a larger delta in the statement",
        honest_runs.elsewhere,
        both(lambda run, statement: replace(statement, delta=1e-3)),
        "statement: .*delta is",
    ),
    edit(
        "users claimed where records were cut",
        honest_runs.elsewhere,
        both(lambda run, statement: replace(statement, relation="user")),
        "statement: .*relation is 'user'",
    ),
    edit(
        "the makers' word passed off as proved",
        honest_runs.elsewhere,
        both(lambda run, statement: replace(statement, declared=False)),
        "statement: the published statement differs: declared is missing",
    ),
    edit(
        "a statement of votes that nobody declared",
        honest_runs.elsewhere,
        undeclared,
        "statement: .*nobody declared whom they cover",
    ),
    edit(
        "a guesser said to be right less often",
        honest_runs.elsewhere,
        by_hand(lambda run: run.public_statement, r'("guess": )[\d.]+', r"\g<1>0.5"),
        "release: .*trade_off.guess is 0.5",
    ),
    edit(
        "a card that says less of the best guesser",
        honest_runs.elsewhere,
        by_hand(
            lambda run: run.student / "MODEL_CARD.md", r"right at most [\d.]+% of", "right at most 1% of"
        ),
        "release: .*MODEL_CARD.md does not say what the best guesser",
    ),
    edit(
        "kinder words for the relation",
        honest_runs.elsewhere,
        by_hand(lambda run: run.public_statement, r'("relation_in_words": ")[^"]+', r"\g<1>everybody"),
        "release: .*relation_in_words",
    ),
    edit(
        "fewer labels on the card than were bought",
        honest_runs.elsewhere,
        by_hand(lambda run: run.student / "MODEL_CARD.md", r"\d+ of 30 asked", "1 of 30 asked"),
        "release: .*MODEL_CARD.md does not say",
    ),
    edit("a seeded run passed off as private", seeded, both(kept_secret), "statement: .*private is True"),
    edit(
        "a sensitive figure called publishable",
        honest_runs.elsewhere,
        both(
            lambda run, statement: replace(
                statement,
                figures={
                    **statement.figures,
                    "exact": Figure(statement.figures["exact"].epsilon, None, "publishable"),
                },
            )
        ),
        "release: statement.json holds the sensitive figure 'exact'",
    ),
]


# ---- votes, answers, keys, data


def arrays(path_of, kind, **changes):
    def apply(run):
        found = storage.read_arrays(path_of(run), kind)
        storage.write_arrays(path_of(run), kind, {**found, **{name: f(found) for name, f in changes.items()}})

    return apply


def votes_of(run):
    return run.votes


def one_more_teacher(run):
    """A place that only fills up a device has voted too."""
    votes = voting.load_votes(run.votes)
    labels = np.concatenate([votes.teacher_labels, votes.teacher_labels[:1]])
    histograms = np.asarray(voting.histogram(labels, 3))
    voting.save_votes(run.votes, votes._replace(votes=histograms, teacher_labels=labels))


def other_secret(run):
    storage.write_json(run.keys, "keys", {"seed": None, "entropy": "5f" * 31 + "07"})


def no_entropy(run):
    storage.write_json(run.keys, "keys", {"seed": None, "entropy": "00" * 32})


def larger_budget(run):
    recorded = run.record.stages()["budget"]
    settings(run, budget={**recorded, "epsilon": 8.0})


def asked_again(run):
    """The second batch asks about the inputs of the first, and the ledger says so."""
    first, second = (voting.load_votes(run.votes_of(batch)) for batch in (1, 2))
    voting.save_votes(run.votes_of(2), second._replace(ids=first.ids))
    rewrite(run, lambda bodies: [bodies[0], {**bodies[1], "public": ledger.asked(first)}])


def one_record_changed(run):
    """The table was corrected after the teachers had been trained."""
    data = run.record.stages()["data"]
    with np.load(data["private"], allow_pickle=False) as file:
        content = dict(file)
    content["inputs"][3] += 1
    np.savez(run.root / "private-again.npz", **content)
    settings(run, data={**data, "private": str(run.root / "private-again.npz")})


def private_among_the_public(run):
    """Five private records were added to the public file, which an older version took."""
    data = run.record.stages()["data"]
    private, public = (np.load(data[name], allow_pickle=False) for name in ("private", "public"))
    with private, public:
        rows = {
            name: np.concatenate([public[name], private[name][:5]]) for name in ("inputs", "labels", "ids")
        }
    np.savez(run.root / "public-again.npz", **rows)
    settings(run, data={**data, "public": str(run.root / "public-again.npz")})


def a_user_in_two_shards(run):
    """Records in place of users were cut, and certified as users."""
    settings(run, partition={**run.record.stages()["partition"], "by": "record"})


def removal_covered(run):
    """A guarantee for contents passed off as one for whole records, in the settings and both statements."""
    settings(run, relation={"relation": "record"})
    stages.account(run)


def relation_left_out(run):
    """Settings that do not say whom the guarantee covers."""
    run.record.revise({}, ["relation"])
    stages.account(run)


def a_narrower_program(run):
    """Three teachers were to share a program, and memory made it one."""
    settings(run, teacher={**run.record.stages()["teacher"], "width": 3})


def open_to_all(run):
    os.chmod(run.private, 0o755)


def forged_to_the_end(run):
    """Another teacher's labels, and then everything made to fit, by somebody who has the keys."""
    votes = voting.load_votes(run.votes)
    labels = votes.teacher_labels.copy()
    labels[0] = (labels[0] + 1) % 3
    histograms = np.asarray(voting.histogram(labels, 3))
    voting.save_votes(run.votes, votes._replace(votes=histograms, teacher_labels=labels))
    run.ledger.unlink()
    chain.head_path(run.ledger).unlink()
    run.answers.unlink()
    aside = run.root / "aside"
    aside.mkdir()
    published = [run.release, run.results]
    for path in published:  # answers are not drawn again beside what was published of others
        path.rename(aside / path.name)
    batches.answer(run, from_dict(run.record.stages()["mechanism"]))
    stages.account(run)
    shutil.rmtree(run.release, ignore_errors=True)
    for path in published:
        (aside / path.name).rename(path)
    aside.rmdir()


def of_another_teacher(run):
    """The first teacher's numbers replaced by the second's: it has seen a shard that is not its own."""
    (folder,) = checkpoint.folders(run.teachers)
    for path in sorted(folder.glob("wave-*/arrays.npz")):
        arrays = storage.read_arrays(path, checkpoint.STAGE)
        params = {name: leaf for name, leaf in arrays.items() if name.startswith("params.")}
        swapped = {name: np.concatenate([leaf[1:2], leaf[1:]]) for name, leaf in params.items()}
        storage.write_arrays(path, checkpoint.STAGE, {**arrays, **swapped})


RECORDS = [
    edit(
        "votes edited",
        honest_runs.elsewhere,
        arrays(votes_of, "votes", votes=lambda f: f["votes"][::-1]),
        "ledger: .*votes",
    ),
    edit("a padded teacher voted", honest_runs.whole, one_more_teacher, "votes: .*7.* teachers voted"),
    edit(
        "an answer edited",
        honest_runs.budgeted,
        arrays(lambda run: run.answers, "answers", labels=lambda f: f["labels"][::-1]),
        "ledger: .*answers",
    ),
    edit("the secret replaced", honest_runs.budgeted, other_secret, "noise: .*another noise"),
    edit("a secret of zeros", honest_runs.budgeted, no_entropy, "keys: .*entropy"),
    edit("the budget raised after the fact", honest_runs.budgeted, larger_budget, "budget: "),
    edit(
        "inputs that were answered asked about again",
        honest_runs.budgeted,
        asked_again,
        "queries: .*in common",
    ),
    edit("a record changed after training", honest_runs.whole, one_record_changed, "partition: .*contents"),
    edit(
        "private records among the public inputs",
        honest_runs.whole,
        private_among_the_public,
        "queries: 5 of 35 inputs of the public part are private",
    ),
    edit("cut by record and certified by user", honest_runs.whole, a_user_in_two_shards, "partition: "),
    edit(
        "row numbers passed off as ids",
        honest_runs.without_ids,
        removal_covered,
        "partition: .*give 'contents'",
    ),
    edit("the relation left out", honest_runs.without_ids, relation_left_out, "partition: .*give 'contents'"),
    edit(
        "a named width cut by memory",
        honest_runs.whole,
        a_narrower_program,
        "fed: 1 teachers shared a program where 3 were wanted",
    ),
    edit("the private folder open to everybody", honest_runs.budgeted, open_to_all, "keys: .*other users"),
    edit(
        "labels of no teacher, and all else made to fit",
        honest_runs.whole,
        forged_to_the_end,
        "labels: ",
        deep=True,
    ),
    edit(
        "a teacher of another shard", honest_runs.whole, of_another_teacher, "teachers: teacher 0", deep=True
    ),
]


# ---- release


def put(name, content):
    def apply(run):
        with open(run.release / name, "ab") as stream:
            stream.write(content(run))

    return apply


def teacher_for_student(run):
    teachers = checkpoint.finished_teachers(run.teachers)
    ((_, parameters),) = checkpoint.parameters_of(teachers, [2])
    path = run.student / "parameters.npz"
    found = storage.read_arrays(path, "student-parameters")
    own = trees.flat(parameters)
    storage.write_arrays(
        path, "student-parameters", {name: own.get(name, array) for name, array in found.items()}
    )


def exact_figure(run):
    figure = storage.read_json(run.statement, "statement")["figures"]["exact"]
    return f"<p>and in truth {figure['epsilon']:.4f}</p>".encode()


def histogram_text(run):
    return json.dumps(voting.load_votes(run.votes).votes.tolist()).encode()


CARD = "student/MODEL_CARD.md"
RELEASE = [
    edit(
        "votes in the release",
        honest_runs.elsewhere,
        lambda run: shutil.copy(run.votes, run.release),
        "release: votes.npz",
    ),
    edit(
        "votes written into the page",
        honest_runs.elsewhere,
        put("report.html", histogram_text),
        "release: .*votes",
    ),
    edit("a teacher published as the student", honest_runs.whole, teacher_for_student, "release: .*teachers"),
    edit(
        "a private id in the card",
        honest_runs.whole,
        put(CARD, lambda run: b"patient-017 is in\n"),
        "release: .*private 'patient",
    ),
    edit(
        "a private path in the card",
        honest_runs.elsewhere,
        put(CARD, lambda run: str(run.private).encode()),
        "release: .*path",
    ),
    edit(
        "a seed in the card", honest_runs.elsewhere, put(CARD, lambda run: b"seed = 7\n"), "release: .*seed"
    ),
    edit(
        "a sensitive figure in the page",
        honest_runs.elsewhere,
        put("report.html", exact_figure),
        "release: .*sensitive figure exact",
    ),
]


@pytest.mark.parametrize("one", [*LEDGER, *STATEMENT, *RECORDS, *RELEASE])
def test_an_edited_run_is_found(one, tmp_path):
    is_found(one, tmp_path)
