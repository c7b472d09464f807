"""What `pate risk` prints: quantiles and a histogram, marked as sensitive; nobody is named."""

from __future__ import annotations

from pate_jax.audit.attacks.risk import SENSITIVE, Risk

_WIDTH = 40
_TOLD = {
    "epsilon": "epsilon",
    "best_guess": "best guess",
    "caught": "caught at 0.1%",
}


def text(risk: Risk) -> str:
    """The page of a terminal."""
    asked = "all" if len(risk.names) == risk.everybody else f"a sample or list of {risk.everybody:,}"
    lines = [
        SENSITIVE + ".",
        f"{len(risk.names):,} people ({asked}) by {risk.by}, each taken out alone, at delta {risk.delta:g}:",
        "",
        *_levels(risk),
        "",
        *_bars(risk),
        "",
        "The run promises everybody "
        + ", ".join(f"epsilon {epsilon:.4g} ({name})" for name, epsilon in risk.promised.items())
        + ".",
        f"The most exposed by id: {risk.run.risk / 'risk.json'}",
        f"Everybody: {risk.run.risk / 'people.csv'}",
    ]
    return "\n".join(lines)


def _levels(risk: Risk) -> list[str]:
    """A row for each figure, a column for each quantile."""
    found = risk.levels()
    lines = [f"{'':<16}" + "".join(f"{level:>10}" for level in found["epsilon"])]
    for name, told in _TOLD.items():
        lines.append(f"{told:<16}" + "".join(f"{value:>10.4f}" for value in found[name].values()))
    return lines


def _bars(risk: Risk) -> list[str]:
    """A bar for the people between two epsilons."""
    people, edges = risk.histogram()
    most = max(1, *people)
    return [
        f"{low:>8.4f} to {high:<8.4f} {'#' * -(-_WIDTH * number // most):<{_WIDTH}} {number:,}"
        for number, low, high in zip(people, edges[:-1], edges[1:], strict=True)
    ]
