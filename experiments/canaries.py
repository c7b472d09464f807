"""What canaries show of epsilon beside what is claimed: `python -m experiments.canaries RUN`.

Canaries play in the pipeline of a finished run of class sums, in its space and with its weights, with the
noise that each epsilon asks for, and in twins of it at epsilon 1. One line of JSON for each case, and a table
of all lines.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pate_jax.system import devices

devices.prepare()

import numpy as np  # noqa: E402

from pate_jax.accounting.exact import counts  # noqa: E402
from pate_jax.aggregate import noise  # noqa: E402
from pate_jax.audit.attacks import canaries as canary_audit  # noqa: E402
from pate_jax.audit.attacks import twins  # noqa: E402
from pate_jax.audit.attacks.sums_pipeline import Sums  # noqa: E402
from pate_jax.runs.crowds import inputs as crowd_inputs  # noqa: E402
from pate_jax.runs.crowds.inputs import Crowd  # noqa: E402
from pate_jax.runs.directory import RunDirectory  # noqa: E402
from pate_jax.system import storage  # noqa: E402

RESULTS = Path(__file__).parents[1] / "benchmarks/results/canaries.jsonl"
_MORE = 1 + 2e-6  # of noise, for the distance of the noise from its law
TWINS: dict[str, Callable[[Sums], Sums]] = {
    "no noise": twins.without_noise,
    "noise ten times too small": twins.too_little_noise,
    "voters three times too long": twins.unbounded,
}
REUSED = "a reused key"


def made(opened: Crowd, epsilon: float, canaries: int) -> Sums:
    """The pipeline of a run with the noise of another epsilon."""
    table, delta = canary_audit.releases(opened.run)[0], opened.choice.delta
    mu = counts.mu_for(epsilon, delta)
    table = dataclasses.replace(table, sigma=2 * table.length / mu * _MORE)
    return canary_audit.planted(opened, table, counts.headcount_for(mu, "sums"), canaries)


def line(case: str, epsilon: float, honest: Sums, canaries: int, delta: float) -> dict[str, Any]:
    """What canaries show in one case."""
    began, key = time.process_time(), secrets.randbits(31)
    pipeline = TWINS.get(case, lambda same: same)(honest)
    runs = canary_audit.game(canaries, honest.records // 2)
    drawn = (lambda: noise.seeded_key(key)) if case == REUSED else noise.fresh_key
    seen = canary_audit.played(pipeline, runs, coins=np.random.default_rng(key), key=drawn)
    found = [one.to_dict() for one in canary_audit.bounds(seen, honest, delta)]
    return {
        "case": case, "epsilon": epsilon, "canaries": seen.coins.size, "runs": runs,
        "bounds": found, "cpu_seconds": round(time.process_time() - began, 1),
    }  # fmt: skip


def table(lines: list[dict[str, Any]]) -> str:
    """The lines as Markdown: each score by its larger bound, bold where the claim is shown to be broken."""
    scores = list(dict.fromkeys(one["score"] for line in lines for one in line["bounds"]))
    rows = [f"| pipeline | claimed | {' | '.join(f'`{score}`' for score in scores)} |"]
    rows.append("|" + "---|" * (len(scores) + 2))
    for line in lines:
        cells = [line["case"], f"{line['epsilon']:g}"]
        for score in scores:
            those = [one for one in line["bounds"] if one["score"] == score]
            usual = max(one["delta"] for one in those)
            best = f"{max(one['epsilon'] for one in those if one['delta'] == usual):.2f}"
            cells.append(best if all(one["holds"] for one in those) else f"**{best}**")
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    """Plant canaries in the pipeline of a run, and print the table of all lines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, help="a finished run of class sums in one round")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 0.3, 1.0, 2.0, 4.0, 8.0])
    parser.add_argument("--canaries", type=int, default=20_000)
    parser.add_argument("--results", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    opened, lines = crowd_inputs.opened(RunDirectory(chosen.run), tolerant=True), []
    for epsilon in chosen.epsilons:
        honest = made(opened, epsilon, chosen.canaries)
        cases = ["honest", *([*TWINS, REUSED] if epsilon == 1.0 else [])]
        lines += [line(case, epsilon, honest, chosen.canaries, opened.choice.delta) for case in cases]
    storage.write_bytes(chosen.results, "".join(json.dumps(one) + "\n" for one in lines).encode())
    print(table(lines))


if __name__ == "__main__":
    main()
