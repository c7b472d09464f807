"""Lower bounds of epsilon from canaries whose presence coins decided, by `jax_privacy.auditing`.

- `one run`: all canaries are in one data set, and guesses are a function of what was published (Steinke,
  Nasr, Jagielski 2023, arXiv 2305.08846, Theorem 5.2).
- `one run, Gaussian`: the same for a guarantee that is one Gaussian shift (Mahloujifar, Melis, Chaudhuri
  2024, arXiv 2410.22235). It proves that no mu of a smaller epsilon is kept.
- `many runs`: one canary in a run, runs independent: Clopper and Pearson's limits of both rates (Jagielski,
  Ullman, Oprea 2020, arXiv 2006.07709).

How many are accused is fixed before the coins are looked at, and the doubt is shared by all rates and
scores. `epsilon_from_gdp` of jax_privacy 2.0.0 is not used: it takes the absolute value of a distance that is
negative where an attack finds nothing, so it shows leaks in pure noise. The default correction for all
thresholds divides by those alone that the data single out, so it is not used either. Derived in
docs/proofs/attacks.md, section 8.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from pate_jax.errors import PateError

DOUBT = 0.05  # of all bounds that are shown
ALARM = 1e-4  # of those by which a claim is said to be broken
SHARES = (0.01, 0.03, 0.1)  # of the canaries that are accused
TINY = 1e-10  # a delta at which one run is looked at too: it weighs on the doubt, once for each canary
LEVELS = (0.01, 0.05, 0.2, 0.5)  # false positives that many runs aim at
Scores = Float[np.ndarray, " canary"]
Claim = Callable[[float], float]


class Lower(NamedTuple):
    """What epsilon is at least, by one score and one method, beside what is claimed."""

    score: str
    method: str
    delta: float
    claimed: float
    epsilon: float  # at least; all bounds together hold with 95%
    certain: float  # at least; all bounds together hold with 99.99%

    @property
    def holds(self) -> bool:
        """Whether the claim may be true."""
        return self.certain <= self.claimed

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {**self._asdict(), "holds": self.holds}


class Rates(NamedTuple):
    """Scores of runs with the canary, without it, and of others without it, from which thresholds come."""

    present: Float[np.ndarray, " run"]
    absent: Float[np.ndarray, " run"]
    before: Float[np.ndarray, " calibration"]


def one_run(
    scores: Mapping[str, Scores],
    present: Bool[np.ndarray, " canary"],
    claim: Claim,
    delta: float,
    shift: bool,
) -> list[Lower]:
    """The bounds of one data set with all canaries; `shift`: what is released is one Gaussian shift."""
    if not present.any() or present.all():
        raise PateError(f"{len(present)} canaries are all in or all out: take more of them")
    ways = [("one run", "epsilon_one_run", at) for at in (delta, min(delta, TINY))]
    ways += [("one run, Gaussian", "epsilon_one_run_fdp", delta)] if shift else []
    parts, found = len(scores) * len(ways) * len(SHARES), []
    for score, values in scores.items():
        ranked, auditor = np.sort(values), _auditor(values[present], values[~present])
        cuts = {float(ranked[-max(1, int(share * len(values)))]) for share in SHARES}
        for name, method, at in ways:
            sure = [_best(auditor, method, cuts, doubt / parts, at) for doubt in (DOUBT, ALARM)]
            found.append(Lower(score, name, at, claim(at), *sure))
    return found


def many_runs(scores: Mapping[str, Rates], claim: Claim, deltas: tuple[float, ...]) -> list[Lower]:
    """The bounds of many runs with one canary each; the limits of the rates serve every delta."""
    parts, found = len(scores) * len(LEVELS), []
    for score, seen in scores.items():
        auditor = _auditor(seen.present, seen.absent)
        cuts = {float(cut) for cut in _cuts(seen.before)}
        for delta in deltas:
            best = [
                _best(auditor, "epsilon_clopper_pearson", cuts, doubt / parts, delta)
                for doubt in (DOUBT, ALARM)
            ]
            found.append(Lower(score, "many runs", delta, claim(delta), *best))
    return found


def _cuts(before: Float[np.ndarray, " calibration"]) -> Iterator[float]:
    """Just above what each share of the runs without the canary reaches at most."""
    for level in LEVELS:
        yield np.nextafter(np.quantile(before, 1 - level, method="higher"), np.inf)


def _best(auditor: Any, method: str, cuts: set[float], doubt: float, delta: float) -> float:
    explicit = auditing().Explicit
    ask = getattr(auditor, method)
    return max(float(ask(doubt, delta, threshold_strategy=explicit(cut))) for cut in cuts)


def _auditor(present: Float[np.ndarray, " present"], absent: Float[np.ndarray, " absent"]) -> Any:
    return auditing().CanaryScoreAuditor(present, absent)


def missing() -> str | None:
    """What has to be installed, if it is not."""
    if importlib.util.find_spec("jax_privacy") is not None:
        return None
    return "canaries need jax_privacy 2.0 to bound epsilon: pip install 'pate-jax[baselines]'"


def auditing() -> ModuleType:
    """The library, which is an extra."""
    if (reason := missing()) is not None:
        raise PateError(reason)
    from jax_privacy import auditing as found

    return found  # type: ignore[no-any-return]
