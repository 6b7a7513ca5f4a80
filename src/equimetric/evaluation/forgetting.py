"""What is forgotten when classes arrive in rounds.

Forgetting as in Chaudhry, Dokania, Ajanthan, Torr: "Riemannian walk for incremental learning" (2018), backward transfer
as in Lopez-Paz, Ranzato: "Gradient episodic memory for continual learning" (2017).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.arrays import Floats

__all__ = ["Forgetting", "measure_forgetting"]


@dataclass(frozen=True, eq=False)
class Forgetting:
    """A metric of the classes of every round after every round, and what follows from it.

    values             (R, R) value of the classes of round j (column) after round r (row)
    mean_so_far        (R,) mean over the classes of all rounds so far, after each round
    forgotten          (R − 1,) drop of the classes of every earlier round from their best
    forgetting         the mean of these; positive where something was forgotten
    backward_transfer  mean change of earlier rounds since they were learned; negative where they have become worse
    """

    values: Floats
    mean_so_far: Floats
    forgotten: Floats
    forgetting: float
    backward_transfer: float


def measure_forgetting(values: ArrayLike) -> Forgetting:
    """From values a_rj (R, R) of the classes of round j after round r, where a larger one is better.

    f_j = max_{j ≤ r < R} a_rj − a_Rj,  forgetting = mean_{j < R} f_j,  backward transfer = mean_{j < R} (a_Rj − a_jj).
    Values of rounds that are still to come, j > r, do not count and may be NaN.
    """
    table = np.asarray(values, np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or len(table) < 2:
        raise EquimetricError(f"forgetting needs a square table of two rounds at least, not one of shape {table.shape}")
    if not np.isfinite(table[np.tril_indices(len(table))]).all():
        raise EquimetricError("after every round the classes of all rounds so far need a finite value")
    last = len(table) - 1
    best = np.array([table[j:last, j].max() for j in range(last)])
    forgotten = best - table[last, :last]
    return Forgetting(
        values=table,
        mean_so_far=np.array([table[r, : r + 1].mean() for r in range(len(table))]),
        forgotten=forgotten,
        forgetting=float(forgotten.mean()),
        backward_transfer=float((table[last, :last] - np.diag(table)[:last]).mean()),
    )
