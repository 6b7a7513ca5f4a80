"""The table [evaluation] of a configuration: what is measured on validation and test classes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from equimetric.configuration import Strict
from equimetric.evaluation import METRICS, parse_metrics
from equimetric.evaluation.cohort import check_cohort_metrics
from equimetric.evaluation.engine.inputs import GEOMETRY_NAMES, find_own_geometry
from equimetric.evaluation.parents import check_parent_metrics

__all__ = ["CohortConfig", "EvaluationConfig"]


class CohortConfig(Strict):
    """Classes of the run by which the similarities of its test classes are normalised."""

    part: Literal["train", "validation"] = Field("train", description="which classes are the cohort")
    strength: float = Field(0.5, ge=0, le=1, description="from 0, no normalisation, to 1")
    nearest: int = Field(50, ge=1, description="how many of the most similar cohort images count")


class EvaluationConfig(Strict):
    """What is measured on validation and test classes."""

    metrics: list[str] = Field(
        default=["recall@1", "recall@2", "recall@4", "recall@8", "r_precision", "map@r"],
        min_length=1,
        description="names as for `equimetric evaluate`, such as recall@1, map@r, nmi, eer, tar@far=1e-3, opis",
    )
    ks: list[int] | None = Field(None, min_length=1, description="shorthand: replaces the recall@K of `metrics`")
    selected_by: str = Field("map@r", description="validation metric that selects the best weights; higher is better")
    geometry: str = Field("cosine", description="as for `equimetric evaluate`: cosine, euclidean, dot, l1, l3, linf …")
    binarise: bool = Field(False, description="compare the signs of the embeddings by Hamming distance")
    cohort: CohortConfig | None = Field(
        None, description="normalise the similarities of test images by a cohort of other classes: { strength = 0.5 }"
    )

    parents: str | None = Field(
        None, description="compare within superclasses alone: an attribute of the data that holds them"
    )

    @model_validator(mode="after")
    def _geometry_exists(self) -> EvaluationConfig:
        if self.geometry not in GEOMETRY_NAMES:
            find_own_geometry(self.geometry)
        return self

    @model_validator(mode="after")
    def _binary_codes_have_one_geometry(self) -> EvaluationConfig:
        if self.binarise and self.geometry != "cosine":
            raise ValueError("binarise compares signs by Hamming distance; leave geometry out")
        return self

    @model_validator(mode="after")
    def _metrics_exist(self) -> EvaluationConfig:
        parsed = parse_metrics(self.names())
        if self.cohort is not None:
            if self.binarise or self.geometry != "cosine":
                raise ValueError("a cohort normalises cosines; leave geometry and binarise out, or the cohort")
            check_cohort_metrics(parsed)
        if self.parents is not None:
            check_parent_metrics(parsed)
        (selecting,) = parse_metrics(self.selected_by)
        if not METRICS[selecting.family].higher_is_better:
            raise ValueError(
                f"selected_by keeps the weights with the largest value, which {self.selected_by!r} is not meant for; "
                "choose a metric such as 'map@r' or 'tar@far=1e-2'"
            )
        return self

    def names(self) -> list[str]:
        """The metrics to report, the one that selects the best weights among them."""
        names = list(self.metrics)
        if self.ks is not None:
            names = [f"recall@{k}" for k in self.ks] + [name for name in names if not name.startswith("recall@")]
        return list(dict.fromkeys([*names, self.selected_by]))

    def compared_by(self) -> str:
        """The geometry of `evaluate`."""
        return "hamming" if self.binarise else self.geometry

    def unit_length(self) -> bool:
        """Whether the geometry compares vectors of unit length."""
        if self.geometry in GEOMETRY_NAMES:
            return self.geometry in ("cosine", "hamming")
        return find_own_geometry(self.geometry).normalize
