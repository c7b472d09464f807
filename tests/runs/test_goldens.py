"""Small seeded runs come out as they were recorded, bit for bit: what only moves code changes none of this.

`goldens.json` holds, for each run, the lines of its ledger and its published statement. Whoever changes one
on purpose writes the file anew and says why:
`WRITE_GOLDENS=1 python -m pytest -n 0 -m "long or not long" tests/runs/test_goldens.py`. Parties are missing,
since their keys, and with them agreement and noise, are new in each vote.
"""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import honest_runs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_baseline_runs
import test_stable_runs

from pate_jax.ensemble import TeacherConfig
from pate_jax.mechanisms import ConfidentDiscreteGaussian, DiscreteGaussianMax, GaussianHistogram
from pate_jax.runs import batches, chain, pipeline, stages
from pate_jax.runs.baselines import training
from pate_jax.runs.directory import RunDirectory
from pate_jax.system import storage
from pate_jax.voting import Votes

FILE = Path(__file__).parent / "goldens.json"
OF_THE_CHAIN = (*chain.OF_THE_CHAIN, "kind")


def plain(value):
    """The same on every machine: floats to six digits, long texts by their digest."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return (
        hashlib.sha256(value.encode()).hexdigest()[:16]
        if isinstance(value, str) and len(value) > 400
        else value
    )


def leaves(value):
    """All that a line says, without the names under which it says it."""
    if isinstance(value, dict | list):
        return set().union(*map(leaves, value.values() if isinstance(value, dict) else value))
    return set() if value is None else {str(value)}


def told(run):
    """What a run has released, and what it says of that."""
    lines = [{k: v for k, v in one.items() if k not in OF_THE_CHAIN} for one in chain.read(run.ledger)]
    statement = storage.read_json(run.public_statement, "statement")
    return {"ledger": [sorted(leaves(plain(line))) for line in lines], "statement": plain(statement)}


def asked(out, mechanism, *lists, epsilon=None):
    """Answers to lists of votes that somebody else made, with repeated inputs."""
    run, random = RunDirectory(out), np.random.default_rng(3)
    with run.writing():
        for batch, rows in enumerate(lists):
            ids = np.array([f"pool-{row % 37}" for row in rows])
            votes = Votes(random.multinomial(50, [0.5, 0.3, 0.2], size=len(rows)), ids=ids)
            batches.adopt(run, votes, 3, more=batch > 0, relation="record")
            batches.answer(run, mechanism, epsilon if batch == 0 else None)
        stages.account(run, 1e-5)
    return run


def listed(out):
    run = RunDirectory(out)
    test_stable_runs.ask(run, 2)
    with run.writing():
        stages.account(run, test_stable_runs.DELTA)
    return run


def by_ridge(out):
    config = honest_runs.by_teachers(out, 7, teacher=TeacherConfig(net="linear", devices=1), queries=12)
    pipeline.run(replace(config, mechanism=DiscreteGaussianMax(2.0)))
    return RunDirectory(out)


def trained(out):
    out.mkdir()
    data = test_baseline_runs.records(out)
    training.run(test_baseline_runs.config(data, out / "run", net="linear", seed=5, register=Path("none")))
    return RunDirectory(out / "run")


def chosen(out):
    config = honest_runs.RunConfig(
        honest_runs.table(),
        honest_runs.PartitionChoice(seed=5),
        voters="auto",
        epsilon=4.0,
        out=out,
        student=honest_runs.STUDENT,
        register=honest_runs.UNCOUNTED,
    )
    pipeline.run(config)
    return RunDirectory(out)


LABELS, TESTED, WHOLE = (
    DiscreteGaussianMax(20.0),
    ConfidentDiscreteGaussian(24.0, 9.0, 6.0),
    GaussianHistogram(30.0),
)
OF_VOTES = {  # of fixed whole numbers: the same on every machine
    "one list": lambda out: asked(out, LABELS, range(30)),
    "two lists under a budget": lambda out: asked(out, LABELS, range(20), range(15, 37), epsilon=4.0),
    "repeated inputs": lambda out: asked(out, TESTED, range(60)),
    "whole histograms": lambda out: asked(out, WHOLE, range(10)),
    "a stable list of two batches": listed,
}
OF_RECORDS = {  # of floats, which other machines round otherwise
    "neighbours by user": lambda out: honest_runs.crowd("neighbours", "user", 5),
    "sums in steps": lambda out: honest_runs.in_steps(seed=5),
    "a comparison": lambda out: honest_runs.compared(seed=5),
    "a choice of voters": chosen,
    "teachers by ridge": by_ridge,
    "a head by DP-SGD": trained,
    "a choice of settings": lambda out: RunDirectory(honest_runs.choice().out),
}


def machine():
    """How this machine rounds: a digest of a product and of eigenvalues."""
    values = jax.random.normal(jax.random.key(0), (33, 33), jnp.float32)
    parts = values @ values.T, jnp.tanh(values), np.linalg.eigh(np.asarray(values @ values.T, np.float64))[0]
    return storage.digest(*map(np.asarray, parts))


def is_golden(name, run):
    """Compare, or record."""
    recorded, found = json.loads(FILE.read_text()) if FILE.exists() else {}, told(run)
    if "WRITE_GOLDENS" in os.environ:
        FILE.write_text(
            json.dumps({**recorded, "machine": machine(), name: found}, indent=1, sort_keys=True) + "\n"
        )
        return
    assert found == recorded[name]


@pytest.mark.parametrize("name", OF_VOTES)
def test_answers_to_fixed_votes_are_the_recorded_ones(name, tmp_path):
    is_golden(name, OF_VOTES[name](tmp_path / "run"))


@pytest.mark.long
@pytest.mark.parametrize("name", OF_RECORDS)
def test_runs_of_records_are_the_recorded_ones(name, tmp_path, monkeypatch):
    if "WRITE_GOLDENS" not in os.environ and json.loads(FILE.read_text())["machine"] != machine():
        pytest.skip("this machine rounds otherwise than the one on which the runs were recorded")
    is_golden(name, OF_RECORDS[name](tmp_path / "run"))
