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
    """Properties of the training data that are needed to rebuild a model.

    Attributes:
        channels: channels of the images, or the dimension of feature vectors.
        vectors: whether the data are feature vectors in place of images.
        classes: number of training classes.
        images: number of training images.
        attributes: number of different values among them, by attribute.
        modalities: for paired data, the dimensions of the two concatenated kinds of vectors.
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
    """The true accept rate of the validation classes with one form and strength of a run's cohort.

    Attributes:
        form, strength: options of `Cohort`.
        tar: true accept rate of the validation classes.
        error: standard error over classes of its gain on the default's.
        is_default: whether the others had to exceed it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    form: Literal["mean", "full"]
    strength: float
    tar: float
    error: float = 0.0
    is_default: bool = False


class CohortSetting(BaseModel):
    """The cohort by which a run normalises the similarities of its test classes.

    Attributes:
        part: the classes it is made of.
        form, strength, nearest: options of `Cohort`.
        classes: number of classes.
        far: false accept rate at which the rates of `tried` were compared.
        tried: candidates it was chosen from on the validation classes; empty where it is configured.
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
    """Size of a model, and passes to embed an image.

    Attributes:
        parameters: all learnable values, frozen ones included.
        training_only: values that an embedding does not need.
        forward_passes: passes through a backbone to embed an image.
        dim: dimensions of an embedding.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    parameters: int
    training_only: int
    forward_passes: int
    dim: int


class Memory(BaseModel):
    """The peak memory of a run, in bytes, from reading its data to the scores of its test classes.

    Attributes:
        process: resident set of the process, with libraries, data, and memory held since earlier runs in it; for a
            resumed run, since then.
        device: memory allocated on the GPU; None without one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    process: int
    device: int | None = None


class MemberResult(BaseModel):
    """One member of an ensemble alone, on the test images; with `labels`, by that attribute instead of the classes."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    name: str
    dim: int
    labels: str | None = None
    metrics: dict[str, float] = {}


class Diversity(BaseModel):
    """Difference of members, the mean over pairs of them.

    Attributes:
        disagreement: share of queries for which the nearest neighbour is right for exactly one of two.
        unlikeness: 1 − linear CKA of their embeddings.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    disagreement: float | None = None
    unlikeness: float


class CrossModalResult(BaseModel):
    """Retrieval of one modality by the other, on the test classes.

    Attributes:
        query, gallery: names of the modalities.
        relevant: relevant items: the same item, or any of the same class.
        queries, items: number of queries, and of items in the gallery.
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
    """Metrics and metadata of a run, or the reason why it failed.

    Attributes:
        metrics: metrics of the test classes; empty where the model was trained on them.
        plain: with a cohort, the same metrics without it; else empty.
        cohort: the cohort that normalises the similarities behind `metrics`.
        validation: best metrics of the validation classes; empty where the model was trained on them.
        best_step, steps: the step of the kept weights, and the steps taken.
        notes: notes for the user: a collapse, no gain over the start, classes that were trained on.
        source: the run that a final model repeats.
        memory: peak memory; None for older runs, and where the system does not report it.
        cost: parameters, forward passes and dimensions.
        members, diversity: for an ensemble, on the test images; nothing is chosen by them.
        cross_modal: for two encoders, retrieval of one modality by the other.
        error, traceback: for a failed run.
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
    def parse(cls, values: dict[str, Any], source: str) -> RunResult:
        """The record behind a result file, of this schema or an older one."""
        schema = values.get("schema", 0)
        if not isinstance(schema, int) or schema > RESULT_SCHEMA:
            raise EquimetricError(f"{source} was written by a newer version of Equimetric; upgrade to read it")
        try:
            return cls.model_validate(from_first_schema(values) if schema < 2 else values)
        except (ValidationError, KeyError, TypeError) as error:
            raise DamagedFileError(
                f"{source} is not the result of a run ({error}); remove the run's folder and run it again"
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
