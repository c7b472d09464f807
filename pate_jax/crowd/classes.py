"""How many classes the noise of a table leaves room for, by public numbers alone."""

from __future__ import annotations

from pate_jax.mechanisms.crowds import CrowdTable, NeighbourCounts

_DROWNED = 4  # voters of a class over the scale of the noise: with fewer, noise looks like a class


def doubt(release: CrowdTable, voters: int) -> str | None:
    """One sentence, if a class of the usual size says hardly more than the noise does; else None.

    A voter adds at most one vote at a query, or one vector of the release's length. So a class cannot say
    more in one place than it has voters, which is `voters / classes` of the usual one.

    >>> doubt(NeighbourCounts(queries=20, classes=40, votes=2, sigma=2.0), voters=80)[:46]
    '40 classes have about 2 voters each, and the n'
    >>> doubt(NeighbourCounts(queries=20, classes=10, votes=2, sigma=2.0), voters=80) is None
    True
    """
    noise = release.sigma if isinstance(release, NeighbourCounts) else release.sigma / release.length
    each = voters / release.classes
    if each >= _DROWNED * noise:
        return None
    return (
        f"{release.classes} classes have about {each:.0f} voters each, and the noise is as large as "
        f"{noise:.0f} of them: labels may be no better than the most frequent class; join classes, allow a "
        "larger epsilon, or have more voters"
    )
