"""Load the embeddings of `evaluate`, `calibrate` and `identify`: from a file, or from the classes of a run."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equimetric.errors import EquimetricError

if TYPE_CHECKING:
    from equimetric.evaluation import Cohort

__all__ = [
    "CohortOptions",
    "EmbeddingSource",
    "load_embeddings",
    "pool_embeddings",
    "require_run_for_part",
]


@dataclass(frozen=True)
class CohortOptions:
    """Options of a cohort; None for that of the embeddings, or the default."""

    source: str | None = None
    strength: float | None = None
    form: str | None = None

    def explicit(self) -> dict[str, Any]:
        """Strength and form, where they were given."""
        values = {"strength": self.strength, "form": self.form}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, eq=False)
class EmbeddingSource:
    """Embeddings and labels, with the metrics and geometry that belong to them.

    Attributes:
        arrays: the arguments of `evaluate`, the gallery included, without the cohort.
        pooled: all embeddings and labels as one set.
        cohort: the cohort that normalises similarities.
        metrics: the metrics that a run reports; None for a file.
        geometry: the default geometry of comparisons.
        origin: facts of a run as arguments of `calibrate`: class names, model and preprocessing.
    """

    arrays: dict[str, Any]
    pooled: dict[str, Any]
    cohort: "Cohort | None" = None
    metrics: list[str] | None = None
    geometry: str = "cosine"
    origin: dict[str, Any] = field(default_factory=dict)


def load_embeddings(
    source: Path,
    labels: Path | None,
    part: str = "test",
    parents: str | None = None,
    cohort: CohortOptions | None = None,
    *,
    command: str,
    condition: str | None = None,
) -> EmbeddingSource:
    """The arrays of a file, or a part of the classes of a run, exactly as its own result was computed.

    A condition changes the images of a run. In the folder of a run it is recorded that the command has opened its test
    classes.
    """
    cohort = cohort or CohortOptions()
    if not source.is_dir():
        if condition is not None:
            raise EquimetricError(f"--condition changes the images of a run, and {str(source)!r} is no run's folder")
        from equimetric.evaluation.files import read_embeddings

        arrays: dict[str, Any] = dict(read_embeddings(source, labels, parents))
        pooled = {} if "gallery_embeddings" in arrays else dict(arrays)
        return EmbeddingSource(arrays, pooled, cohort=load_cohort(source, cohort))
    if labels is not None:
        raise EquimetricError(f"the run {str(source)!r} has its own labels; --labels goes only with an .npy file")
    from equimetric.runs.access_log import record_test_access
    from equimetric.runs.evaluation import CohortOverride, embed_run
    from equimetric.runs.origin import describe_preprocessing, weights_sha256

    override = CohortOverride(cohort.source, **cohort.explicit())
    config, embedded = embed_run(source, part, parents=parents, cohort=override, condition=condition)
    if part == "test":
        record_test_access(source, command)
    arrays = embedded.arrays()
    run_cohort = arrays.pop("cohort", None)
    across = config.evaluation.across is not None
    pooled = {} if across else {"embeddings": embedded.embeddings, "labels": embedded.labels}
    origin = {
        # Across modalities the labels are of either search, not class ids.
        "class_names": None if across else embedded.class_names,
        "model": weights_sha256(source),
        "preprocessing": describe_preprocessing(source),
    }
    names, compared_by = config.evaluation.names(), config.evaluation.compared_by()
    return EmbeddingSource(arrays, pooled, run_cohort, names, compared_by, origin)


def require_run_for_part(part: str, *sources: Path | None) -> None:
    """Raise an error where a part of the classes is asked for and none of the sources is a run."""
    if part != "test" and not any(source is not None and source.is_dir() for source in sources):
        raise EquimetricError(f"--part chooses classes of a run, and {str(sources[0])!r} is no run's folder")


def pool_embeddings(embeddings: EmbeddingSource, source: Path) -> dict[str, Any]:
    """All embeddings and labels to calibrate on; an error where there are two sets of them."""
    if not embeddings.pooled:
        raise EquimetricError(
            f"{str(source)!r} has a separate gallery; a threshold is calibrated on one set of labelled embeddings"
        )
    return embeddings.pooled


def load_cohort(source: Path, options: CohortOptions) -> "Cohort | None":
    """The cohort of a file of embeddings: another file, or the one beside the embeddings."""
    from equimetric.evaluation import Cohort
    from equimetric.evaluation.files import read_cohort

    if options.source == "none":
        return None
    cohort = read_cohort(source, embedded_only=True) if options.source is None else read_cohort(options.source)
    arrays: dict[str, Any] = cohort or {}
    if cohort is None and options.explicit():
        raise EquimetricError("there is no cohort to normalise by; give its file by --cohort")
    return Cohort(**arrays, **options.explicit()) if arrays else None
