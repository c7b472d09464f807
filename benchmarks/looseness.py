"""Where a published PATE epsilon is loose, step by step: `python benchmarks/looseness.py VOTES.npz`."""

import argparse

import numpy as np

from pate_jax import accounting
from pate_jax.accounting import exact, papers
from pate_jax.accounting.bounds import threshold
from pate_jax.accounting.data_independent import WorstCase
from pate_jax.accounting.exact import pld
from pate_jax.mechanisms import ConfidentGNMax


def steps(mechanism, votes, delta):
    """Name, epsilon and kind of figure, from the paper's to the tightest and to what may be published."""
    orders = np.union1d(accounting.default_orders(), papers.orders_2018())
    published = accounting.published_parts(mechanism, votes, orders)
    exactly = exact.parts(mechanism, votes, orders)
    weight = np.exp(published.log_answered)[:, None]

    def found(curve, conversion="tight"):
        return accounting.epsilon(orders, curve.sum(axis=0), delta, conversion=conversion).epsilon

    paper = published.test + weight * published.argmax
    counts = accounting.rdp(mechanism, votes, orders, method="data_independent", rule="counts")
    index = accounting.rdp(mechanism, votes, orders, method="data_independent")
    apart = len(votes) * (
        threshold.data_independent(mechanism.test, orders) + orders / mechanism.noise.scale**2
    )
    return [
        ("published analysis, expected sum, classic conversion", found(paper, "classic"), "no bound"),
        ("the same, tight conversion", found(paper), "no bound"),
        ("exact test", found(exactly.test + weight * published.argmax), "no bound"),
        ("exact test and argmax, expected sum", found(exactly.test + weight * exactly.argmax), "no bound"),
        (
            "joint mechanism, Renyi",
            found(accounting.rdp(mechanism, votes, orders, method="exact")),
            "this data",
        ),
        ("joint mechanism, PLD", pld.epsilon(mechanism, votes, delta), "this data"),
        ("data-independent, noisy counts, test plus argmax, Renyi", found(apart[None]), "publishable"),
        ("data-independent, noisy counts, joint, Renyi", found(counts), "publishable"),
        ("data-independent, one index, joint, Renyi", found(index), "publishable"),
        ("the statement's data-independent figure", worst_case(mechanism, votes, delta), "publishable"),
    ]


def worst_case(mechanism, votes, delta):
    teachers, times = np.unique(votes.sum(axis=1), return_counts=True)
    return WorstCase(mechanism, teachers, votes.shape[1]).figure(times, delta).epsilon.epsilon


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("votes")
    parser.add_argument("--queries", type=int, default=640)
    parser.add_argument(
        "--setting", type=float, nargs=3, default=(200, 150, 40), help="threshold, two sigmas"
    )
    parser.add_argument("--delta", type=float, default=1e-5)
    chosen = parser.parse_args()
    with np.load(chosen.votes) as file:
        votes = file["votes"][: chosen.queries].astype(np.int64)
    for name, epsilon, kind in steps(ConfidentGNMax(*chosen.setting), votes, chosen.delta):
        print(f"{name:<56}{epsilon:>8.4f}  {kind}")


if __name__ == "__main__":
    main()
