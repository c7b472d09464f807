"""The papers' formulas in mpmath, 50 digits after all cancellation, written from the papers alone."""

import mpmath as mp

DIGITS = 400  # 1 - q keeps 50 digits down to q of 1e-350


def normal_tail(x):
    return mp.erfc(mp.mpf(x) / mp.sqrt(2)) / 2


def gnmax_q(votes, sigma):
    """2018, Proposition 7."""
    top = max(votes)
    rest = sorted(votes)[:-1]
    q = sum(mp.erfc((top - n) / (2 * mp.mpf(sigma))) / 2 for n in map(mp.mpf, map(int, rest)))
    return min(q, 1 - mp.mpf(1) / len(votes))


def theorem6(q, sigma, order):
    """2018, Theorem 6 with Proposition 10."""
    sigma, order = mp.mpf(sigma), mp.mpf(order)
    baseline = order / sigma**2
    mu2 = sigma * mp.sqrt(mp.log(1 / q))
    mu1 = mu2 + 1
    if not (mu2 > 1 and order <= mu1):
        return baseline
    e1, e2 = mu1 / sigma**2, mu2 / sigma**2
    limit = mp.exp((mu2 - 1) * e2) / (mu1 / (mu1 - 1) * mu2 / (mu2 - 1)) ** mu2
    if q > limit or q * mp.exp(e2) >= 1:
        return baseline
    a = (1 - q) / (1 - (q * mp.exp(e2)) ** ((mu2 - 1) / mu2))
    b = mp.exp(e1) / q ** (1 / (mu1 - 1))
    return min(baseline, mp.log((1 - q) * a ** (order - 1) + q * b ** (order - 1)) / (order - 1))


def lnmax_q(votes, scale):
    """2017, Lemma 4."""
    top, rest = max(votes), sorted(votes)[:-1]
    gaps = [(mp.mpf(int(top)) - int(n)) / mp.mpf(scale) for n in rest]
    return min(sum((2 + g) / (4 * mp.exp(g)) for g in gaps), 1 - mp.mpf(1) / len(votes))


def lnmax_rdp(q, scale, order):
    """2017, Theorems 2 and 3, as Renyi cost."""
    e, moment = 2 / mp.mpf(scale), mp.mpf(order) - 1
    best = min(e**2 * moment * (moment + 1) / 2, e * moment)
    if q <= 1 / (1 + mp.exp(e)):
        term = (1 - q) * ((1 - q) / (1 - mp.exp(e) * q)) ** moment + q * mp.exp(e * moment)
        best = min(best, mp.log(term))
    return best / moment


def renyi(p, q, order):
    return mp.log(sum(a**order * b ** (1 - order) for a, b in zip(p, q, strict=True))) / (order - 1)


def close(found, wanted, rel=1e-9, absolute=1e-300):
    """Within a relative error, for an mpmath reference."""
    return abs(mp.mpf(float(found)) - wanted) <= rel * abs(wanted) + absolute
