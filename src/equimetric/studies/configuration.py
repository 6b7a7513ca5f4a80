"""The configuration of a study: methods × seeds under equal conditions."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from pydantic import Field, field_validator

from equimetric.configuration import Options, Strict
from equimetric.runs.configuration import Conditions, LearnerConfig

__all__ = ["Baseline", "MethodConfig", "StudyConfig"]

Baseline: TypeAlias = Literal["raw_pixels", "raw_features", "untrained"]


class MethodConfig(Strict):
    """What may differ between the methods of a study."""

    method: str = Field("", description="name of the method; default: the name of the table")
    options: Options = Field(default_factory=dict, description="options of the method")
    learner: LearnerConfig = Field(default_factory=LearnerConfig)
    objective_lr: float | None = Field(None, gt=0, description="learning rate of the objective's own parameters")

    @classmethod
    def explain_unknown(cls, path: str, key: str) -> str:
        """Point a condition to the tables of the whole study."""
        if key in Conditions.model_fields:
            return (
                f"{path}: {key!r} may not differ between methods, because the comparison would be unfair; "
                f"set it once for the whole study as [{key}]"
            )
        return super().explain_unknown(path, key)


class StudyConfig(Conditions):
    """A fair comparison: methods × seeds under equal conditions."""

    name: str = Field(description="name of the study and of its folder under the output folder")
    title: str = Field("", description="title of the report")
    seeds: list[int] = Field(default=[0, 1, 2], min_length=1, description="one run of every method for each seed")
    baselines: list[Baseline] | None = Field(
        None,
        description="untrained rows: raw_pixels, raw_features, untrained; default: those the data allow",
    )
    methods: dict[str, MethodConfig] = Field(min_length=1, description="one table for each method")
    workers: int = Field(2, ge=1, description="runs in parallel, each in its own process")

    @field_validator("name")
    @classmethod
    def _name_is_a_folder(cls, name: str) -> str:
        return check_folder_name(name)

    @field_validator("methods")
    @classmethod
    def _methods_are_folders(cls, methods: dict[str, MethodConfig]) -> dict[str, MethodConfig]:
        reserved = {*get_args(Baseline), "report"} & set(methods)
        if reserved:
            raise ValueError(f"{reserved.pop()!r} names a baseline or the report; choose another name")
        return {check_folder_name(name): method for name, method in methods.items()}

    @field_validator("seeds")
    @classmethod
    def _seeds_differ(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds) or min(seeds) < 0:
            raise ValueError("seeds must be different integers, 0 or larger")
        return seeds

    def conditions(self) -> dict[str, Any]:
        """The part that all runs share."""
        return self.model_dump(include=set(Conditions.model_fields))


def check_folder_name(name: str) -> str:
    """The name, if it can be a folder inside the run tree."""
    if not name or name.startswith(".") or not all(c.isalnum() or c in "._-+ " for c in name) or name != name.strip():
        raise ValueError(f"{name!r} cannot be a folder name; use letters, digits and . _ - +")
    return name
