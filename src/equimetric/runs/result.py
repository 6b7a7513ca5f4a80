"""The result of a run as one typed, versioned record."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from equimetric.errors import DamagedFileError, EquimetricError

__all__ = [
    "RESULT_SCHEMA",
    "CohortSetting",
    "Cost",
    "CrossModalResult",
    "DataShape",
    "Diversity",
    "MemberResult",
    "Memory",
    "RunResult",
    "RunSource",
    "ScoredCohort",
]

RESULT_SCHEMA = 2


class DataShape(BaseModel):
    """What a model must know of the data it was trained on in order to be built again.

    Attributes:
        channels: of the images, or the dimension of feature vectors.
        vectors: whether the data are feature vectors in place of images.
        classes: number of training classes.
        images: number of training images.
        attributes: number of different values among them, by attribute.
        modalities: of paired data, the dimensions of the two kinds of vectors that stand side by side.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    channels: int
    vectors: bool
    classes: int
    images: int
    attributes: dict[str, int] = {}
    modalities: dict[str, int] = {}


class RunSource(BaseModel):
    """The run that a final model repeats.

    Attributes:
        key: hash of everything that determined its result.
        folder: where it was.
        best_step: the step that its validation chose.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    folder: str
    best_step: int


class ScoredCohort(BaseModel):
    """The true accept rate of the validation classes with one cohort, form and strength."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    part: Literal["train", "validation", "both", "cohort"]
    form: Literal["mean", "full"]
    strength: float
    tar: float


class CohortSetting(BaseModel):
    """The cohort by which a run normalises the similarities of its test classes.

    Attributes:
        part: the classes it is made of.
        form, strength, nearest: of `Cohort`.
        classes: how many it has.
        far: false accept rate at which the rates of `tried` were compared.
        tried: what it was chosen from on the validation classes; empty where the configuration gives it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    part: Literal["train", "validation", "both", "cohort"]
    form: Literal["mean", "full"] = "mean"
    strength: float = 0.5
    nearest: int = 50
    classes: int = 0
    far: float | None = None
    tried: tuple[ScoredCohort, ...] = ()


class Cost(BaseModel):
    """What a model costs.

    Attributes:
        parameters: all learnable values, frozen ones included.
        training_only: those that an embedding does not need.
        forward_passes: of an image through a backbone, to be embedded.
        dim: of an embedding.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    parameters: int
    training_only: int
    forward_passes: int
    dim: int


class Memory(BaseModel):
    """The peak memory of a run, in bytes, from reading its data to the scores of its test classes.

    Attributes:
        process: resident set of the process, with libraries, data, and what earlier runs of the process have left; of a
            run that was resumed, since then.
        device: allocated on the GPU; None without one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    process: int
    device: int | None = None


class MemberResult(BaseModel):
    """One member of an ensemble by itself, on the test images; by an attribute of the data in place of the classes."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    name: str
    dim: int
    labels: str | None = None
    metrics: dict[str, float] = {}


class Diversity(BaseModel):
    """How much members differ, the mean over pairs of them.

    Attributes:
        disagreement: share of queries for which the nearest neighbour is right for exactly one of two.
        unlikeness: 1 − linear CKA of their embeddings.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    disagreement: float | None = None
    unlikeness: float


class CrossModalResult(BaseModel):
    """How well one modality finds the other, on the test classes.

    Attributes:
        query, gallery: which is searched for in which.
        relevant: what is to be found: the same item, or any of the same class.
        queries, items: how many there are.
        metrics: recall, mean average precision and median rank.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    query: str
    gallery: str
    relevant: Literal["item", "class"]
    queries: int
    items: int
    metrics: dict[str, float] = {}


class RunResult(BaseModel):
    """What a run measured, or why it failed.

    Attributes:
        metrics: on the test classes; empty where the model was trained on them.
        plain: with a cohort, the same without it, by the same scores; else empty.
        cohort: by which the similarities behind `metrics` are normalised.
        validation: the best ones on the validation classes; empty where the model was trained on them.
        best_step, steps: the step of the weights that are kept, and the steps taken.
        notes: what a user should know of the run: a collapse, no gain over the start, classes that were trained on.
        source: of a final model, the run that it repeats.
        memory: its peak; None of older runs, and where the system does not tell.
        cost: parameters, forward passes and dimensions.
        members, diversity: of an ensemble, on the test images; nothing is chosen by them.
        cross_modal: of two encoders, how well one modality finds the other.
        error, traceback: of a failed run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    result_schema: int = Field(RESULT_SCHEMA, alias="schema")
    status: Literal["done", "failed"]
    role: Literal["final", "trial", "baseline", "joined", "probe", "refit"]
    method: str
    seed: int
    metrics: dict[str, float] = {}
    plain: dict[str, float] = {}
    cohort: CohortSetting | None = None
    validation: dict[str, float] = {}
    best_step: int = 0
    steps: int = 0
    seconds: float = 0.0
    memory: Memory | None = None
    parameters: int = 0
    data: DataShape | None = None
    notes: tuple[str, ...] = ()
    source: RunSource | None = None
    cost: Cost | None = None
    members: tuple[MemberResult, ...] = ()
    diversity: Diversity | None = None
    cross_modal: tuple[CrossModalResult, ...] = ()
    error: str | None = None
    traceback: str | None = None

    @classmethod
    def parse(cls, values: dict[str, Any], where: str) -> RunResult:
        """The record behind a result file, of this schema or an older one."""
        schema = values.get("schema", 0)
        if not isinstance(schema, int) or schema > RESULT_SCHEMA:
            raise EquimetricError(f"{where} was written by a newer version of Equimetric; upgrade to read it")
        try:
            return cls.model_validate(from_first_schema(values) if schema < 2 else values)
        except (ValidationError, KeyError, TypeError) as error:
            raise DamagedFileError(
                f"{where} is not the result of a run ({error}); remove the run's folder and run it again"
            ) from None

    def to_json(self) -> str:
        """The file's content."""
        return self.model_dump_json(indent=2, by_alias=True)


def from_first_schema(values: dict[str, Any]) -> dict[str, Any]:
    """Results of schema 1: `kind` instead of `role`, the data's shape in three keys."""
    upgraded = {key: value for key, value in values.items() if key not in ("kind", "channels", "vectors", "context")}
    upgraded |= {"schema": RESULT_SCHEMA, "role": {"trained": "final"}.get(values["kind"], values["kind"])}
    if "context" in values:
        context = values["context"]
        upgraded["data"] = {
            "channels": values["channels"],
            "vectors": values.get("vectors", False),
            "classes": context["classes"],
            "images": context["images"],
        }
    return upgraded
