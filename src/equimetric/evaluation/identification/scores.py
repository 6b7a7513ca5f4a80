"""Results of searching the gallery for every probe of every draw, before a threshold.

A gallery entry is accepted if its distance is below the threshold, so the accepted ones are the first few by rising
distance; which identity these name is known before the threshold is.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from equimetric.evaluation.engine.arrays import Floats, Integers

__all__ = ["IdentificationScores", "empty_scores", "join_scores", "names_own"]


@dataclass(frozen=True, eq=False)
class IdentificationScores:
    """P searches, each of one probe in one draw of the gallery.

    distance        (P, k) of the nearest entries, rising; +∞ where there are fewer
    named           (P, k) whether the first j accepted entries name the probe's own identity, j = 1 … k
    probe           (P,) row of the probe among the queries
    probe_class     (P,)
    stranger        (P,) whether the probe's class is not in the gallery
    nearest_class   (P,) identity of the nearest entry
    rival_distance  (P,) of the nearest entry of any other identity than that
    rival_named     (P,) whether that one is the probe's own
    """

    distance: Floats
    named: NDArray[np.bool_]
    probe: Integers
    probe_class: Integers
    stranger: NDArray[np.bool_]
    nearest_class: Integers
    rival_distance: Floats
    rival_named: NDArray[np.bool_]

    @property
    def strangers(self) -> int:
        """Number of searches for strangers."""
        return int(self.stranger.sum())

    @property
    def different_strangers(self) -> int:
        """Number of probes that are a stranger in some draw."""
        return len(np.unique(self.probe[self.stranger]))

    def named_changes(self) -> tuple[Floats, Floats]:
        """Distances (M, k) of mated probes, and by how much the number of named probes changes as each is accepted."""
        mated = ~self.stranger
        return self.distance[mated], np.diff(self.named[mated].astype(np.float64), axis=1, prepend=0.0)

    def select(self, which: NDArray[np.bool_] | Integers) -> "IdentificationScores":
        """Some of the searches."""
        return IdentificationScores(*(getattr(self, field.name)[which] for field in fields(self)))

    def write(self, indices: Integers, scores: "IdentificationScores") -> None:
        """Write searches to their rows."""
        for field in fields(self):
            getattr(self, field.name)[indices] = getattr(scores, field.name)

    @property
    def mated(self) -> int:
        """Number of searches for probes with a mate."""
        return len(self.stranger) - self.strangers


def join_scores(parts: Iterable[IdentificationScores]) -> IdentificationScores:
    """The searches of several draws as one."""
    parts = list(parts)
    names = [field.name for field in fields(IdentificationScores)]
    return IdentificationScores(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def empty_scores(searches: int, depth: int) -> IdentificationScores:
    """Arrays for P searches that read k entries each; entries that are never written are too far to be accepted."""
    return IdentificationScores(
        distance=np.full((searches, depth), np.inf),
        named=np.zeros((searches, depth), bool),
        probe=np.empty(searches, np.int64),
        probe_class=np.empty(searches, np.int64),
        stranger=np.empty(searches, bool),
        nearest_class=np.empty(searches, np.int64),
        rival_distance=np.empty(searches),
        rival_named=np.empty(searches, bool),
    )


def names_own(identities: Integers, identity: Integers) -> NDArray[np.bool_]:
    """(P, k) whether the majority of the first j of the nearest identities (P, k) is the true one (P,), for every j.

    Of identities with equally many entries the one with the nearest entry wins. A missing entry has identity −1.
    """
    named = np.empty(identities.shape, bool)
    present = identities >= 0
    for j in range(identities.shape[1]):
        first = identities[:, : j + 1]
        votes = (first[:, :, None] == first[:, None, :]) & present[:, : j + 1, None] & present[:, None, : j + 1]
        # argmax takes the first of equal counts, which is the nearest.
        winner = np.take_along_axis(first, votes.sum(2).argmax(1)[:, None], 1)[:, 0]
        named[:, j] = winner == identity
    return named
