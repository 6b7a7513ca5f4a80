"""The result of a run as one typed, versioned record."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from equimetric.errors import DamagedFileError, EquimetricError

__all__ = ["RESULT_SCHEMA", "DataShape", "RunResult"]

RESULT_SCHEMA = 2


class DataShape(BaseModel):
    """What a model must know of the data it was trained on in order to be built again.

    Attributes:
        channels: of the images, or the dimension of feature vectors.
        vectors: whether the data are feature vectors in place of images.
        classes: number of training classes.
        images: number of training images.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    channels: int
    vectors: bool
    classes: int
    images: int


class RunResult(BaseModel):
    """What a run measured, or why it failed.

    Attributes:
        metrics: on the test classes.
        validation: the best ones on the validation classes.
        best_step, steps: the step of the weights that are kept, and the steps taken.
        error, traceback: of a failed run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    result_schema: int = Field(RESULT_SCHEMA, alias="schema")
    status: Literal["done", "failed"]
    role: Literal["final", "trial", "baseline"]
    method: str
    seed: int
    metrics: dict[str, float] = {}
    validation: dict[str, float] = {}
    best_step: int = 0
    steps: int = 0
    seconds: float = 0.0
    parameters: int = 0
    data: DataShape | None = None
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
