"""`python -m experiments.students CASE --folder DATA`: how good a student gets for how small an epsilon.

A case says how many public inputs are asked about, by which mechanism, and how the student learns. The
pool is all but one tenth of the labelled public inputs, tested on that tenth: the last one, as in the
papers, with several seeds, then four others with one. A seed changes the noise, the choice of queries and
the student. Each student is one JSON line in `--out`, and what is there already is not done again.

DATA holds `mnist/` or `fashion_mnist/` (t10k-images-idx3-ubyte.gz) and `votes/cnn_NAME_250.npz` with
`teacher_labels[teacher, image]` and `labels`; where there are no such votes, as for `adult/`, 250 teachers
are trained first. Votes of your own: `--inputs X.npz --votes V.npz`, where X
holds `inputs` and `labels` and row i of the votes belongs to input i. Settings and epsilons were chosen
looking at these labels and votes: a figure says what is possible, not what unseen data will give.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import json
import platform
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pate_jax.system import devices

devices.prepare()

import jax  # noqa: E402
import numpy as np  # noqa: E402
import tyro  # noqa: E402

from experiments.student_cases import CASES, TABLE, Case  # noqa: E402
from experiments.student_votes import Source, by_name, own  # noqa: E402
from pate_jax import accounting, aggregate  # noqa: E402
from pate_jax.aggregate import Answers, noise  # noqa: E402
from pate_jax.student import Auto, PublicInputs, fit, selection  # noqa: E402
from pate_jax.system import exits, storage  # noqa: E402

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "students.jsonl"
Told = Literal["teachers", "plurality", "truth"]
DELTA, FOLDS = 1e-5, 10


class Job(NamedTuple):
    """One student."""

    case: Case
    fold: int
    seed: int
    told: Told

    def identity(self) -> str:
        """What must be equal for a result to be this job's."""
        case = {name: value for name, value in dataclasses.asdict(self.case).items() if value is not None}
        # With the settings of all methods, as when the first results were found, so that these count as done.
        student = {**dataclasses.asdict(Auto(devices=1)), **case["student"]}
        if case["student"].get("settled", 0.0) == 0.0:
            student.pop("settled")  # the first results had all steps
        case["student"] = student
        about = [case, repr(self.case.mechanism), self.fold, self.seed, self.told]
        return hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:16]


def main(
    case: tyro.conf.Positional[Literal[(*CASES, "table")]],  # type: ignore[valid-type]
    folder: Path = Path("../shared/data"),
    inputs: Path | None = None,
    votes: Path | None = None,
    seeds: int = 3,
    splits: int = 5,
    told: Told = "teachers",
    out: Path = RESULTS,
    keep: Path = Path("runs/students"),
) -> None:
    """Train the students of a case that are not in `out` yet, and print what all of them reached.

    Args:
        case: which settings; `table` is every method with 50 to 1,000 answers.
        folder: data and votes by name.
        inputs: an .npz of your own with `inputs` and `labels`, instead.
        votes: votes of your own on those inputs.
        seeds: students on the papers' split.
        splits: different tenths to test on, the papers' one included.
        told: `plurality` leaves out the noise, `truth` the teachers too; both only to see what limits.
        out: JSON lines.
        keep: folder for votes of teachers that had to be trained.
    """
    cases = TABLE if case == "table" else [CASES[case]]
    jobs = [
        Job(each, FOLDS - 1 - 2 * split, seed, told)
        for each in cases
        for split in range(splits)
        for seed in range(seeds if split == 0 else 1)
    ]
    done = finished(out)
    left = [job for job in jobs if job.identity() not in done]
    source = own(inputs, votes) if inputs and votes else by_name(folder, cases[0].dataset, keep, cases[0].net)
    for line in work(left, source):
        done[line["job"]] = line
        add(out, line)
        print(json.dumps(line), flush=True)
    for each in cases:
        told_lines = [done[job.identity()] for job in jobs if job.case == each and job.identity() in done]
        print(json.dumps(summary(each, told_lines)))


def work(jobs: list[Job], source: Source) -> Iterator[dict[str, Any]]:
    """The results as they come; each device trains one student at a time."""
    free = list(jax.local_devices())

    def one(job: Job) -> dict[str, Any]:
        device = free.pop()
        try:
            with jax.default_device(device):
                return student(job, source)
        finally:
            free.append(device)

    with concurrent.futures.ThreadPoolExecutor(len(free)) as pool:
        started = [pool.submit(one, job) for job in jobs]
        yield from (each.result() for each in concurrent.futures.as_completed(started))


def student(job: Job, source: Source) -> dict[str, Any]:
    """Ask, account, learn, test."""
    began, case, classes = time.perf_counter(), job.case, source.votes.shape[1]
    edges = np.linspace(0, len(source.inputs), FOLDS + 1).astype(int)
    test = np.arange(edges[job.fold], edges[job.fold + 1])
    pool = np.setdiff1d(np.arange(len(source.inputs)), test)
    key, scale = b"seed %d" % job.seed, source.preprocessing
    rows = selection.select(case.selection, source.inputs[pool], case.queries, key=key, preprocessing=scale)
    chosen = pool[rows]
    answers = ask(job, source, chosen)
    answered = np.asarray(answers.answered)
    rest = np.setdiff1d(pool, chosen)
    names = tuple(map(str, range(classes)))
    public = PublicInputs(source.inputs[np.concatenate([chosen, rest])], scale, classes, names)
    learned = fit(jax.random.key(job.seed), public, answers, case.student)
    right = np.asarray(answers.labels)[answered] == source.labels[chosen][answered]
    found = learned(source.inputs[pool]).argmax(1) == source.labels[pool]
    return {
        "case": case.name, "dataset": case.dataset, "job": job.identity(), "told": job.told,
        "test": f"{test[0]} to {test[-1]}", "fold": job.fold, "seed": job.seed,
        "method": case.student.method, "mechanism": repr(case.mechanism), "selection": case.selection,
        "queries": case.queries, "answered": int(answered.sum()), "label_accuracy": round(right.mean(), 4),
        "accuracy": learned.accuracy(source.inputs[test], source.labels[test]),
        "pool_accuracy": round(found.mean(), 4),
        "pool_by_class": [round(found[source.labels[pool] == label].mean(), 3) for label in range(classes)],
        **epsilons(case, source.votes[chosen], answered),
        "minutes": round((time.perf_counter() - began) / 60, 2), **machine(),
    }  # fmt: skip


def machine() -> dict[str, Any]:
    """Where this ran."""
    rows = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [row.split(": ")[1] for row in rows if row.startswith("model name")]
    return {"machine": [*names, platform.processor()][0], "cores": devices.cores(), "jax": jax.__version__}


def ask(job: Job, source: Source, chosen: np.ndarray) -> Answers:
    """What the teachers say about the chosen inputs, or what they would say without noise or errors."""
    if job.told == "teachers":
        key = noise.seeded_key(1000 * job.fold + job.seed)
        return aggregate.answer(job.case.mechanism, source.votes[chosen], key=key)
    labels = source.labels[chosen] if job.told == "truth" else source.votes[chosen].argmax(1)
    return Answers(labels.astype(np.int32), np.ones(len(chosen), bool))


def epsilons(case: Case, votes: np.ndarray, answered: np.ndarray) -> dict[str, float | None]:
    """The joint exact figure, which is sensitive, and the publishable one that reads no votes."""
    stated = accounting.statement(case.mechanism, votes, answered, DELTA, private=False)
    names = {"epsilon_exact": "exact", "epsilon_publishable": "data_independent"}
    found = {name: stated.figures[figure].epsilon for name, figure in names.items()}
    return {name: None if value is None else round(value, 4) for name, value in found.items()}


def finished(out: Path) -> dict[str, dict[str, Any]]:
    """The results so far by job."""
    lines = out.read_text().splitlines() if out.is_file() else []
    return {line["job"]: line for line in map(json.loads, lines) if "job" in line}


def add(out: Path, line: dict[str, Any]) -> None:
    """One more line."""
    before = out.read_bytes() if out.is_file() else b""
    storage.write_bytes(out, before + json.dumps(line).encode() + b"\n")


def summary(case: Case, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the seeds of the papers' split, and over the splits."""
    papers = [line for line in lines if line["fold"] == FOLDS - 1]
    firsts = [line for line in lines if line["seed"] == 0]

    def mean(rows: list[dict[str, Any]], name: str) -> float | None:
        values = [row[name] for row in rows if row[name] is not None]
        return round(float(np.mean(values)), 4) if values else None

    worst = {
        name: max((row[name] for row in lines if row[name] is not None), default=None)
        for name in ("epsilon_exact", "epsilon_publishable")
    }
    return {
        "summary": case.name, "method": case.student.method, "queries": case.queries,
        "accuracy": mean(papers, "accuracy"), "seeds": len(papers),
        "accuracy_over_splits": mean(firsts, "accuracy"), "splits": len(firsts),
        "answered": mean(lines, "answered"), "label_accuracy": mean(lines, "label_accuracy"), **worst,
        "minutes": mean(lines, "minutes"),
    }  # fmt: skip


if __name__ == "__main__":
    warnings.simplefilter("default")
    with exits.told("students"):
        tyro.cli(main, prog="experiments.students", description=__doc__)
