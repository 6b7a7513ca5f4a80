"""The table [evaluation] of a configuration: metrics of validation and test classes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from equimetric.configuration import Strict
from equimetric.evaluation import METRICS, parse_metrics
from equimetric.evaluation.cohort import FORMS, CohortForm, check_cohort_metrics
from equimetric.evaluation.cohort_choice import STRENGTHS
from equimetric.evaluation.engine.inputs import GEOMETRY_NAMES, find_custom_geometry
from equimetric.evaluation.parents import check_parent_metrics

__all__ = ["PARTS", "CohortConfig", "CohortPart", "EvaluationConfig", "Relevance"]

CohortPart = Literal["train", "validation", "both", "cohort"]
Relevance = Literal["item", "class"]
PARTS: tuple[CohortPart, ...] = ("train", "validation", "both", "cohort")
OUTSIDE_VALIDATION: tuple[CohortPart, ...] = ("train", "cohort")
"""Cohorts without the validation classes, on which form and strength are chosen."""


class CohortConfig(Strict):
    """Classes of the run by which the similarities of its test classes are normalised.

    "auto" is chosen on the validation classes when training ends: the mean form at half strength, unless another
    gains more than one standard error over classes on it.
    """

    part: CohortPart = Field(
        "train",
        description="which classes are the cohort; 'cohort' are those of data.parts.cohort; where anything is 'auto', "
        "one without validation classes",
    )
    strength: Annotated[float, Field(ge=0, le=1)] | Literal["auto"] = Field(
        0.5, description="from 0, no normalisation, to 1; the full form knows no other"
    )
    form: Literal["mean", "full", "auto"] = Field(
        "mean", description="subtract how crowded both sides are, or divide by its deviation, too"
    )
    nearest: int = Field(50, ge=1, description="how many of the most similar cohort images count")
    far: float = Field(1e-2, gt=0, lt=1, description="false accept rate at which 'auto' compares true accept rates")

    @property
    def is_chosen(self) -> bool:
        """Whether anything is chosen on validation classes."""
        return "auto" in (self.strength, self.form)

    @model_validator(mode="after")
    def _chosen_on_other_classes(self) -> CohortConfig:
        if self.is_chosen and self.part not in OUTSIDE_VALIDATION:
            raise ValueError(
                f"the cohort part {self.part!r} has the validation classes, on which strength and form are chosen; "
                "give part = 'train' or 'cohort', or both strength and form"
            )
        return self

    def forms(self) -> tuple[CohortForm, ...]:
        """The forms to choose from."""
        return FORMS if self.form == "auto" else (self.form,)

    def strengths(self) -> tuple[float, ...]:
        """The strengths to choose from; 0 is always one of them."""
        return STRENGTHS if self.strength == "auto" else tuple({0.0, self.strength})

    def describe(self) -> str:
        """'cohort of the train classes, mean form, strength 0.5'."""
        classes = {"both": "the train and validation", "cohort": "its own"}.get(self.part, f"the {self.part}")
        if self.is_chosen:
            return f"cohort of {classes} classes, form and strength chosen on validation classes at FAR {self.far:g}"
        strength = f", strength {self.strength:g}" if self.form == "mean" else ""
        return f"cohort of {classes} classes, {self.form} form{strength}"


class EvaluationConfig(Strict):
    """Metrics of validation and test classes, and their options."""

    metrics: list[str] = Field(
        default=["recall@1", "recall@2", "recall@4", "recall@8", "r_precision", "map@r"],
        min_length=1,
        description="names as for `equimetric evaluate`, such as recall@1, map@r, nmi, eer, tar@far=1e-3, opis",
    )
    ks: list[int] | None = Field(None, min_length=1, description="shorthand: replaces the recall@K of `metrics`")
    selected_by: str = Field("map@r", description="validation metric that selects the best weights; higher is better")
    geometry: str = Field(
        "cosine", description="as for `equimetric evaluate`: cosine, euclidean, dot, l1, l3, linf, hyperbolic …"
    )
    binarise: bool = Field(False, description="compare the signs of the embeddings by Hamming distance")
    cohort: CohortConfig | None = Field(
        None,
        description="normalise the similarities of test images by a cohort of other classes: { strength = 0.5 }",
    )

    parents: str | None = Field(
        None, description="compare within superclasses alone: an attribute of the data that holds them"
    )

    across: Relevance | None = Field(
        None,
        description="measure how well one modality finds the other, with the learner 'two_encoders': the same 'item', "
        "or any of the same 'class'",
    )

    @model_validator(mode="after")
    def _geometry_exists(self) -> EvaluationConfig:
        if self.geometry not in GEOMETRY_NAMES:
            find_custom_geometry(self.geometry)
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
        if self.across is not None and (self.parents is not None or self.cohort is not None):
            raise ValueError("across searches one modality by the other; leave parents and cohort out")
        if self.parents is not None or self.across is not None:
            check_parent_metrics(parsed)
        (selector,) = parse_metrics(self.selected_by)
        if not METRICS[selector.family].higher_is_better:
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
        return find_custom_geometry(self.geometry).normalize
