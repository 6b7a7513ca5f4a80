"""A cohort read from a file: embeddings of other classes, with labels where there are any."""

from pathlib import Path
from typing import Any

import numpy as np

from equimetric.errors import EquimetricError
from equimetric.evaluation.cohort import Cohort
from equimetric.evaluation.files import COHORT, load_arrays, read_embeddings

__all__ = ["read_cohort"]


def read_cohort(file: Path | str, *, beside: bool = False, **options: Any) -> Cohort | None:
    """The cohort of a file, with these options of `Cohort`.

    An .npz file has the arrays `cohort_embeddings` and `cohort_labels`, or else `embeddings` and `labels`; labels may
    be missing, also those of an .npy file. With `beside`, only a cohort that an .npz file has beside other embeddings.
    """
    file = Path(file)
    arrays = load_arrays(file) if file.suffix.lower() in (".npz", ".npy") and file.exists() else None
    if isinstance(arrays, dict) and COHORT[0] in arrays:
        return Cohort(arrays[COHORT[0]], arrays.get(COHORT[1]), **options)
    if beside:
        return None
    if isinstance(arrays, dict) and "embeddings" in arrays and "labels" not in arrays:
        return Cohort(arrays["embeddings"], **options)
    if isinstance(arrays, np.ndarray) and not file.with_suffix(".csv").exists():
        return Cohort(arrays, **options)
    found = read_embeddings(file)
    if "gallery_embeddings" in found:
        raise EquimetricError(f"{str(file)!r} has queries and a gallery; a cohort is one set of embeddings")
    return Cohort(found["embeddings"], found["labels"], **options)
