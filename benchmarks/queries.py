"""How many queries a student of images wants: `python -m benchmarks.queries strokes --difficulty 2`.

Drawn images stand for a user's. For each number of queries the rehearsal names its best plan; then all
teachers of that plan really learn from drawn private records and vote, noise is drawn, and the students that
a run chooses from learn the answers. A line has what the rehearsal expected of each number of queries, how
right answers were, and how right ridge and the net (fixmatch) are on the test part. `all` in the results is
the net by all answers, where it learns the surest half of them today.

    python -m benchmarks.queries strokes --difficulty 2 --epsilon 1 >> benchmarks/results/queries.jsonl
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

from pate_jax.system import devices

devices.prepare()

import jax  # noqa: E402
import numpy as np  # noqa: E402

from pate_jax import aggregate, data, student  # noqa: E402
from pate_jax.accounting import planning  # noqa: E402
from pate_jax.aggregate import noise  # noqa: E402
from pate_jax.crowd.roles import Labels  # noqa: E402
from pate_jax.data import synthetic  # noqa: E402
from pate_jax.runs import teacher_rehearsal, teacher_votes  # noqa: E402
from pate_jax.runs.crowds import forecast  # noqa: E402
from pate_jax.runs.inputs import teachers_net  # noqa: E402
from pate_jax.runs.teacher_rehearsal import Tried  # noqa: E402
from pate_jax.student.selection import select  # noqa: E402

DELTA = 1e-5
STUDENTS = {"ridge": student.Ridge(), "net": student.FixMatch()}


def plans(tried: list[Tried]) -> dict[int, Tried]:
    """The best plan of each number of queries."""
    best: dict[int, Tried] = {}
    for one in tried:
        if one.queries not in best or one.right.mean() > best[one.queries].right.mean():
            best[one.queries] = one
    return best


def lines(
    dataset: data.Dataset,
    epsilon: float,
    queries: list[int] | None,
    students: list[str],
    seed: int,
    labelled: bool,
) -> Iterator[dict[str, Any]]:
    """One for each number of queries; students learn where it is one of those that are wanted."""
    wide = forecast.learned(dataset)
    net = teachers_net(teacher_votes.CONFIG, dataset, wide.space)
    labels, records = forecast.judges(dataset, wide, own=False), len(dataset.private.ids)
    entries, mu = teacher_rehearsal.seen(dataset, net), planning.mu(epsilon, DELTA)
    roles = teacher_votes.parts(len(entries), labels, dataset.classes)
    size = {"records": records, "most_queries": len(entries)}
    tried = teacher_rehearsal.every_plan(entries, labels, dataset.classes, roles, mu=mu, **size)
    assert net.front is not None
    public, private = (np.asarray(net.front(part.inputs)) for part in (dataset.public, dataset.private))
    if labelled:
        tried = [one for one in tried if not one.whole]
    chosen = teacher_rehearsal.chosen(tried, dataset.classes)
    for number, plan in plans(tried).items():
        line: dict[str, Any] = {
            "queries": number,
            "chosen": chosen is not None and chosen.queries == number,
            "teachers": plan.teachers,
            "whole": plan.whole,
            "expected": [round(100 * one, 1) for one in plan.right.mean(0)],
            "expected_answers": [round(100 * one, 1) for one in plan.answers_right],
        }
        if queries is None or number in queries:
            rows = select("kmeans", public, number, key=b"queries %d" % seed)
            votes = cast(public[rows], private, np.asarray(dataset.private.labels), plan, dataset.classes)
            line |= reached(dataset, rows, votes, plan, epsilon, students, seed)
        yield line


def cast(asked: np.ndarray, private: np.ndarray, labels: Labels, plan: Tried, classes: int) -> np.ndarray:
    """The votes of all teachers of a plan, each of whom has records of its own."""
    votes, targets = np.zeros((len(asked), classes), np.int32), np.eye(classes)[labels] - 1 / classes
    for rows in np.array_split(np.random.default_rng(7).permutation(len(private)), plan.teachers):
        scores = asked @ teacher_votes.ridge(private[rows], targets[rows], 0.1)
        votes[np.arange(len(asked)), scores.argmax(1)] += 1
    return votes


def reached(
    dataset: data.Dataset,
    rows: np.ndarray,
    votes: np.ndarray,
    plan: Tried,
    epsilon: float,
    students: list[str],
    seed: int,
) -> dict[str, Any]:
    """How right answers and students are."""
    option = teacher_rehearsal._option(plan, dataset.classes, epsilon, DELTA)
    answers = aggregate.answer(option.mechanism, votes, key=noise.seeded_key(seed))
    truth = np.asarray(dataset.public.labels)[rows]
    found: dict[str, Any] = {
        "answers": round(100 * float((np.asarray(answers.labels) == truth).mean()), 1),
        "plurality": round(100 * float((votes.argmax(1) == truth).mean()), 1),
    }
    pool = student.PublicInputs.of(dataset, rows)
    for name in students:
        began = time.perf_counter()
        learned = student.fit(jax.random.key(seed), pool, answers, STUDENTS[name])
        right = learned.accuracy(dataset.test.inputs, dataset.test.labels)
        found |= {
            name: round(100 * float(right), 2),
            f"{name}_seconds": round(time.perf_counter() - began, 1),
        }
    return found


def main() -> None:
    """Print a line for each number of queries."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", choices=("strokes", "glyphs"))
    parser.add_argument("--difficulty", type=float, default=1.0)
    parser.add_argument("--classes", type=int, default=10, help="of glyphs")
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--queries", type=int, nargs="*", help="that students learn from; unset: all")
    parser.add_argument("--students", nargs="+", choices=STUDENTS, default=list(STUDENTS))
    parser.add_argument("--labels", action="store_true", help="no whole histograms")
    parser.add_argument("--seed", type=int, default=0)
    told = parser.parse_args()
    how: dict[str, Any] = {"public_size": 10_000, "test_size": 2000, "difficulty": told.difficulty}
    if told.name == "glyphs":
        dataset = synthetic.glyphs(told.records, classes=told.classes, **how)
    else:
        dataset = synthetic.strokes(told.records, **how)
    about = {"data": told.name, "classes": dataset.classes, "difficulty": told.difficulty}
    about |= {"records": told.records, "epsilon": told.epsilon, "seed": told.seed}
    for line in lines(dataset, told.epsilon, told.queries, told.students, told.seed, told.labels):
        print(json.dumps({**about, **line}), flush=True)


if __name__ == "__main__":
    main()
