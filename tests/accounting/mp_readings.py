"""The threshold test in mpmath: its law at every reading, and the dearest reading by plain search."""

from functools import cache, partial

import mpmath as mp


def gaussian(sigma):
    """`x` to `(Pr[noise >= x], Pr[noise < x])` for N(0, sigma^2)."""
    root = mp.sqrt(2) * sigma
    return cache(lambda x: (mp.erfc(x / root) / 2, mp.erfc(-x / root) / 2))


def discrete_laplace(scale):
    """The same for whole numbers with weights `exp(-|z| / scale)`."""
    r = mp.exp(-1 / scale)
    return cache(lambda k: _both(lambda j: r**j / (1 + r), k))


def discrete_gaussian(sigma):
    """The same for weights `exp(-z^2 / (2 sigma^2))`: summed, or by Euler and Maclaurin."""
    above = _series(sigma) if sigma > 200 else _sum(sigma)
    whole = 2 * above(1) + 1
    return cache(lambda k: _both(lambda j: above(j) / whole, k))


def _both(above, k):
    """From `Pr[noise >= k]` for `k > 0`, of a law that is symmetric."""
    return (above(k), 1 - above(k)) if k > 0 else (1 - above(1 - k), above(1 - k))


def _sum(sigma):
    number = 1200 + int(40 * sigma)  # past every reading that matters up to order 1,000
    weights, weight, ratio, step = [], mp.mpf(1), mp.exp(-1 / (2 * sigma**2)), mp.exp(-1 / sigma**2)
    for _ in range(number):
        weights.append(weight)
        weight, ratio = weight * ratio, ratio * step
    sums = [mp.mpf(0)]
    for weight in reversed(weights):
        sums.append(sums[-1] + weight)
    return lambda k: sums[number - int(k)]


def _series(sigma):
    root = mp.sqrt(2) * sigma
    shares = [mp.bernpoly(n + 1, mp.mpf(1) / 2) / mp.factorial(n + 1) / (-root) ** n for n in range(1, 24, 2)]

    def above(k):
        y = (mp.mpf(k) - mp.mpf(1) / 2) / root
        polynomials = [mp.mpf(1), 2 * y]  # Hermite's
        for n in range(1, 23):
            polynomials.append(2 * y * polynomials[-1] - 2 * n * polynomials[-2])
        rest = sum(share * value for share, value in zip(shares, polynomials[1::2], strict=True))
        return root * mp.sqrt(mp.pi) / 2 * mp.erfc(y) - rest * mp.exp(-y * y)

    return above


LAWS = {
    "gaussian": gaussian,
    "discrete_gaussian": discrete_gaussian,
    "discrete_laplace": discrete_laplace,
}


def cost(law, order, argmax, x, upwards=True):
    """The joint divergence of readings `x` and `x - 1`, or the reverse, from the definition."""
    (p, not_p), (q, not_q) = (law(-x), law(1 - x)) if upwards else (law(1 - x), law(-x))
    joint = mp.exp((order - 1) * argmax) * p**order * q ** (1 - order) + not_p**order * not_q ** (1 - order)
    return mp.log(joint) / (order - 1)


def worst(family, scale, order, argmax=0, room=mp.inf):
    """The largest cost over readings up to `room`: a grid that knows where peaks can lie, then sections."""
    scale, order, argmax = mp.mpf(scale), mp.mpf(order), mp.mpf(argmax)
    law, whole = LAWS[family](scale), family != "gaussian"
    reach = order + 12 * scale
    stop = min(reach, mp.mpf(room))
    near = [c + scale * k / 2 for c in (1 - order, mp.mpf(0), mp.mpf(1), order) for k in range(-10, 11)]
    grid = [*near, *(-reach + (stop + reach) * k / 30 for k in range(31))]
    grid = sorted({_within(x, -reach, stop, whole) for x in grid})
    return max(_best(partial(cost, law, order, argmax, upwards=way), grid, whole) for way in (True, False))


def _best(value, grid, whole):
    values = [value(x) for x in grid]
    best = max(values)
    for place, here in enumerate(values):
        before, after = max(place - 1, 0), min(place + 1, len(grid) - 1)
        if here >= max(values[before], values[after], best * mp.mpf("0.9")):
            best = max(best, _golden(value, grid[before], grid[after], whole))
    return best


def _within(x, start, stop, whole):
    x = min(max(x, start), stop)
    return mp.mpf(int(mp.floor(x))) if whole else x


def _golden(value, low, high, whole):
    """The largest value between two readings, where there is one peak."""
    share, best = (mp.sqrt(5) - 1) / 2, mp.mpf(0)
    for _ in range(30 if not whole else 200):
        if whole and high - low < 8:
            return max([best, *(value(low + k) for k in range(int(high - low) + 1))])
        left, right = high - share * (high - low), low + share * (high - low)
        if whole:
            left, right = mp.floor(left), mp.floor(right)
        at_left, at_right = value(left), value(right)
        best = max(best, at_left, at_right)
        low, high = (left, high) if at_left < at_right else (low, right)
    return best
