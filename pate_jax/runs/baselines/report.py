"""What a run of DP-SGD says of itself: its two pages, and what `pate budget` shows."""

from __future__ import annotations

from typing import Any

from pate_jax.accounting.sampled_noise import Training
from pate_jax.accounting.training_statement import TrainingStatement
from pate_jax.errors import PateError
from pate_jax.runs import chain
from pate_jax.runs.baselines.tasks import charged
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.release import check
from pate_jax.runs.report import training_pages
from pate_jax.system import storage


def tell(run: RunDirectory) -> dict[str, Any]:
    """Write both report pages and return the results, with the statement among them."""
    results = storage.read_json(run.existing(run.results, "baseline dpsgd"), "results")
    whole = storage.read_json(run.existing(run.statement, "baseline dpsgd"), "statement")
    statement = TrainingStatement.from_dict(whole)
    private = training_pages.private_page(results, statement, run.record.stages())
    storage.write_bytes(run.report, private.encode())
    storage.write_bytes(run.public_report, training_pages.public_page(results, statement).encode())
    check.check(run.release)
    return {**results, "statement": whole}


def summary(run: RunDirectory) -> dict[str, Any]:
    """What the one line of the ledger costs, as `pate budget` shows it; all of it is spent at once."""
    lines = list(chain.entries(run.ledger))
    if not lines:
        raise PateError(f"{run.root} has charged nothing yet: there is nothing to show")
    statement = charged(Training(**lines[0]["training"]), lines[0]["delta"], run.secret.seed is None)
    return {
        "run_dir": str(run.root),
        "training": statement.training._asdict(),
        "charged": statement.charged,
        "budget": None,
        "spent": {"epsilon": statement.headline.epsilon, "delta": statement.delta},
        "left": None,
    }
