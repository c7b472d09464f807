"""Honest runs whose files somebody changed, by mistake or to look better: `pate verify` finds each one."""

import os

import honest_runs
import pytest
from catalogue import edit, is_found

from pate_jax import artefact, batches, budget, ledger, stages, voting
from pate_jax.mechanisms import DiscreteGaussianMax, to_dict

CHAIN = ("artefact", "schema", "sequence", "previous", "digest")


# ---- ledger


def lines(change):
    def apply(run):
        content = run.ledger.read_bytes().splitlines(keepends=True)
        run.ledger.write_bytes(b"".join(change(content)))

    return apply


def rewrite(run, change):
    """The whole ledger anew, chain and head and all, as only somebody with the program can."""
    bodies = [{name: v for name, v in e.items() if name not in CHAIN} for e in ledger.read(run.ledger)]
    run.ledger.unlink()
    ledger.head_path(run.ledger).unlink()
    with ledger.Writer(run.ledger) as book:
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
    labels, answered = ledger.unpack(body["answers"])
    return ledger.pack((labels + 1) % 3, answered)


def other_answers_everywhere(run):
    rewrite(run, lambda bodies: [{**bodies[0], "answers": other_label(bodies[0])}])
    labels, answered = ledger.unpack(ledger.read(run.ledger)[0]["answers"])
    artefact.write_arrays(run.answers, "answers", {"labels": labels, "answered": answered})


def settings(run, **changes):
    artefact.write_json(run.settings, "settings", {**run.recorded(), **changes})


def more_noise_than_was_drawn(run):
    """Sigma doubled in the settings, the ledger and the statements, the answers as they are."""
    claimed, fixed = DiscreteGaussianMax(40.0), budget.fixed(run)
    settings(run, mechanism=to_dict(claimed))

    def changed(body):
        noise = batches.commitment(run, batches.stream(claimed, body["votes"], body["batch"]))
        size = {"teachers": body["teachers"], "classes": body["classes"], "asked": body["asked"]}
        cost = budget.cost_of(fixed, claimed, **size)
        return {**body, "mechanism": to_dict(claimed), "noise": noise, "cost": cost}

    rewrite(run, lambda bodies: [changed(body) for body in bodies])
    stages.account(run)


def a_batch_less(run):
    """The last line dropped and the head put back, as from an older copy."""
    rewrite(run, lambda bodies: bodies[:-1])


def swapped(content):
    return [content[1], content[0]]


def edited_in_place(content):
    return [content[0].replace(b'"asked": 25', b'"asked": 24'), *content[1:]]


def lost_head(run):
    ledger.head_path(run.ledger).unlink()


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
        first_changed(answers=other_label),
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


# ---- keys, budget, queries


def other_secret(run):
    artefact.write_json(run.keys, "keys", {"seed": None, "entropy": "5f" * 31 + "07"})


def no_entropy(run):
    artefact.write_json(run.keys, "keys", {"seed": None, "entropy": "00" * 32})


def larger_budget(run):
    recorded = run.recorded()["budget"]
    settings(run, budget={**recorded, "epsilon": 8.0})


def asked_again(run):
    """The second batch asks about the inputs of the first, and the ledger says so."""
    first, second = (voting.load_votes(run.votes_of(batch)) for batch in (1, 2))
    voting.save_votes(run.votes_of(2), second._replace(ids=first.ids))
    queries = artefact.digest(first.ids)
    rewrite(run, lambda bodies: [bodies[0], {**bodies[1], "queries": queries}])


def open_to_all(run):
    os.chmod(run.private, 0o755)


RECORDS = [
    edit("the secret replaced", honest_runs.budgeted, other_secret, "noise: .*another noise"),
    edit("a secret of zeros", honest_runs.budgeted, no_entropy, "keys: .*entropy"),
    edit("the budget raised after the fact", honest_runs.budgeted, larger_budget, "budget: "),
    edit("answered inputs asked about again", honest_runs.budgeted, asked_again, "queries: .*in common"),
    edit("the private folder open to all", honest_runs.budgeted, open_to_all, "keys: .*other users"),
]


@pytest.mark.parametrize("one", [*LEDGER, *RECORDS])
def test_an_edited_run_is_found(one, tmp_path):
    is_found(one, tmp_path)
