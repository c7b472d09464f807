"""What canaries show of epsilon beside what is claimed: `python -m experiments.canaries strokes`.

Canaries play in the pipeline of class sums in the space and with the noise of a crowd of the data set, at
each epsilon, and in twins of it at epsilon 1. One line of JSON for each case, and a table of all lines.
"""

from __future__ import annotations

import argparse
import json
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pate_jax.system import devices

devices.prepare()

import numpy as np  # noqa: E402

from experiments import attacks, crowds  # noqa: E402
from pate_jax import crowd  # noqa: E402
from pate_jax.accounting.exact import counts  # noqa: E402
from pate_jax.aggregate import noise  # noqa: E402
from pate_jax.audit.attacks import sums_canaries, twins  # noqa: E402
from pate_jax.audit.attacks.sums_pipeline import Sums  # noqa: E402
from pate_jax.crowd import classifier  # noqa: E402

RESULTS = attacks.ROOT / "benchmarks/results/canaries.jsonl"
TWINS: dict[str, Callable[[Sums], Sums]] = {
    "no noise": twins.without_noise,
    "noise ten times too small": twins.too_little_noise,
    "voters three times too long": twins.unbounded,
}
REUSED = "a reused key"


def made(here: crowds.Prepared, epsilon: float, canaries: int) -> Sums:
    """The pipeline of canaries at an epsilon, in the space of a crowd."""
    plan = crowds.planned("sums", here, epsilon)
    public = crowd.vectors(plan.scaling, here.places["pool"][:, : len(plan.space.variances)])
    number = counts.headcount_for(counts.mu_for(epsilon, crowds.DELTA), "sums")
    pool = classifier.measured(public, plan.release.length)
    some = max(1, canaries // sums_canaries.RUNS)
    return sums_canaries.voters(plan.scaling, pool, plan.release, number, some)


def line(name: str, case: str, epsilon: float, honest: Sums, canaries: int) -> dict[str, Any]:
    """What canaries show in one case."""
    began, key = time.process_time(), secrets.randbits(31)
    pipeline = TWINS.get(case, lambda same: same)(honest)
    runs = sums_canaries.game(canaries, honest.records // 2)
    drawn = (lambda: noise.seeded_key(key)) if case == REUSED else noise.fresh_key
    seen = sums_canaries.played(pipeline, runs, coins=np.random.default_rng(key), key=drawn)
    found = [one.to_dict() for one in sums_canaries.bounds(seen, honest, crowds.DELTA)]
    return {
        "data": name, "case": case, "epsilon": epsilon, "canaries": seen.coins.size, "runs": runs,
        "bounds": found, "cpu_seconds": round(time.process_time() - began, 1),
    }  # fmt: skip


def table(lines: list[dict[str, Any]]) -> str:
    """The lines as Markdown: each score by its larger bound, bold where the claim is shown to be broken."""
    scores = list(dict.fromkeys(one["score"] for line in lines for one in line["bounds"]))
    rows = [f"| data, pipeline | claimed | {' | '.join(f'`{score}`' for score in scores)} |"]
    rows.append("|" + "---|" * (len(scores) + 2))
    for line in lines:
        cells = [f"{line['data']}, {line['case']}", f"{line['epsilon']:g}"]
        for score in scores:
            those = [one for one in line["bounds"] if one["score"] == score]
            best = f"{max(one['epsilon'] for one in those):.2f}"
            cells.append(best if all(one["holds"] for one in those) else f"**{best}**")
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    """Plant canaries in the pipelines of the named data sets, and print the table of all lines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="data sets by name")
    parser.add_argument("--archives", type=Path, help="a folder with one folder of archives for each name")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 0.3, 1.0, 2.0, 4.0, 8.0])
    parser.add_argument("--canaries", type=int, default=20_000)
    parser.add_argument("--records", type=int, default=20_000, help="private records at most")
    parser.add_argument("--results", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    for name in chosen.names:
        here, _ = attacks.prepared(name, chosen.archives, chosen.records)
        for epsilon in chosen.epsilons:
            honest = made(here, epsilon, chosen.canaries)
            cases = ["honest", *([*TWINS, REUSED] if epsilon == 1.0 else [])]
            for case in cases:
                attacks.keep(chosen.results, line(name, case, epsilon, honest, chosen.canaries))
    lines = [json.loads(one) for one in chosen.results.read_text().splitlines()]
    print(table(lines))


if __name__ == "__main__":
    main()
