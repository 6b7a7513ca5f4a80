"""A comparison made elsewhere, described in a small TOML file, and its ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, field_validator

from equimetric.configuration import Strict, load_config
from equimetric.errors import EquimetricError, unknown_name
from equimetric.studies.ledger.factors import FACTORS, FactorName, check_varies
from equimetric.studies.ledger.metrics import note_on_metrics
from equimetric.studies.ledger.record import EntryStatus, Ledger, LedgerEntry, waive
from equimetric.studies.ledger.settings import FLOAT_BITS, Settings, compare_dimensions, compare_factor, join_names

__all__ = ["ComparisonDescription", "MethodSettings", "audit_description", "example_names", "load_example"]

NOT_STATED = "not stated"
EXAMPLES = "studies/ledger/examples"


def read_unstated(value: Any) -> Any:
    """None for the words "not stated", which mean the same as a missing key."""
    return None if value == NOT_STATED else value


Unstated = BeforeValidator(read_unstated)
OptionalStr = Annotated[str | None, Unstated]
OptionalCount = Annotated[Annotated[int, Field(ge=0)] | None, Unstated]
OptionalFloat = Annotated[float | None, Unstated]
OptionalBool = Annotated[bool | None, Unstated]
Requirement: TypeAlias = Callable[["MethodSettings"], object]
"""Whether a method meets a requirement: False where it does not, None where that is not stated."""


class MethodSettings(Strict):
    """Training and evaluation settings of one method of a comparison; a missing key means 'not stated'."""

    data: OptionalStr = Field(None, description="images and split")
    backbone: OptionalStr = Field(None, description="network without its head")
    pretrained: OptionalStr = Field(None, description="initial weights, 'none' from scratch")
    networks: OptionalCount = Field(1, description="networks whose outputs form one embedding")
    dim: OptionalCount = Field(
        None, description="dimension of the embedding that is evaluated, of all networks together"
    )
    bits: OptionalCount = Field(FLOAT_BITS, description="bits of each dimension: 1 for signs")
    transform: OptionalStr = Field(None, description="crops and augmentation")
    image_size: OptionalCount = Field(None, description="side of the images that enter the network")
    bounding_boxes: OptionalBool = Field(None, description="whether images are cropped to boxes")
    optimizer: OptionalStr = Field(None, description="update rule of the network")
    lr: OptionalFloat = Field(None, description="learning rate of the network")
    frozen_batch_norm: Annotated[bool | Literal["statistics", "no batch norm"] | None, Unstated] = Field(
        None, description="true, false, 'statistics' alone, or 'no batch norm'"
    )
    batch_size: OptionalCount = Field(None, description="images of a step")
    batch_shape: OptionalStr = Field(None, description="classes × samples")
    normalized: OptionalBool = Field(None, description="whether embeddings have unit length")
    geometry: OptionalStr = Field(None, description="how embeddings are compared")
    epochs: OptionalCount = Field(None, description="training budget, at most")
    steps: OptionalCount = Field(None, description="training budget, at most")
    trials: OptionalCount = Field(None, description="configurations that were tried to tune it; 0 without tuning")
    repetitions: OptionalCount = Field(None, description="independent runs behind the reported figure")
    intervals: OptionalBool = Field(None, description="whether figures have intervals")
    selected_on: Annotated[Literal["validation classes", "test classes", "nothing"] | None, Unstated] = Field(
        None, description="what epochs and hyper-parameters were selected on; 'nothing' where they were fixed before"
    )
    disjoint_classes: OptionalBool = Field(
        None, description="whether training, validation and test classes are disjoint"
    )
    near_duplicates: OptionalCount = Field(None, description="images, or nearly equal ones, found in two parts")
    reported: dict[str, float] = Field(default_factory=dict, description="metric → reported value; not compared")


class ComparisonDescription(Strict):
    """A comparison of methods as its source states it."""

    title: str = Field(description="what is compared")
    source: str = Field("", description="paper, table, address")
    metrics: list[str] = Field(default_factory=list, description="the reported metrics")
    varies: list[str] = Field(default_factory=list, description="factors or keys that it declares to vary")
    waivers: dict[str, str] = Field(default_factory=dict, description="factor → why its fault is accepted")
    common: MethodSettings = Field(default_factory=MethodSettings, description="settings that all methods share")
    methods: dict[str, MethodSettings] = Field(min_length=2, description="one table for each method")

    @field_validator("varies")
    @classmethod
    def _varies_are_known(cls, varies: list[str]) -> list[str]:
        check_varies(varies)
        return varies

    def settings(self) -> dict[str, MethodSettings]:
        """Method → its settings, those that all share included."""
        shared = self.common.model_dump(include=self.common.model_fields_set)
        return {
            name: MethodSettings.model_validate(shared | method.model_dump(include=method.model_fields_set))
            for name, method in self.methods.items()
        }


def reject_study(values: dict[str, Any]) -> dict[str, Any]:
    """Raise an error for the configuration of a study, which has other keys."""
    study_keys = [key for key in ("seeds", "protocol", "baselines", "training", "data") if key in values]
    if study_keys:
        raise EquimetricError(
            f"{study_keys[0]!r} is a key of a study, not of a described comparison: a study is checked by "
            "`equimetric compare` before its first step, and `equimetric audit` takes its folder"
        )
    return values


def audit_description(source: ComparisonDescription | Mapping[str, Any] | str | Path) -> Ledger:
    """The ledger of a comparison that is described in a TOML file, a mapping or a `ComparisonDescription`."""
    if isinstance(source, ComparisonDescription):
        described = source
    else:
        described = load_config(source, ComparisonDescription, complete=reject_study)
    methods = described.settings()
    entries, notes = waive(check_description(methods, described.varies), described.waivers)
    return Ledger(
        title=described.title,
        source=described.source,
        varies=tuple(described.varies),
        waivers=described.waivers,
        entries=tuple(entries),
        notes=(*notes, *note_on_figures(methods), *note_on_metrics(described.metrics)),
    )


def note_on_figures(methods: Mapping[str, MethodSettings]) -> list[str]:
    """The range of each reported metric."""
    notes = []
    for metric in dict.fromkeys(metric for method in methods.values() for metric in method.reported):
        figures = {name: method.reported[metric] for name, method in methods.items() if metric in method.reported}
        low, high = min(figures, key=figures.__getitem__), max(figures, key=figures.__getitem__)
        notes.append(f"Reported {metric}: from {figures[low]:g} ({low}) to {figures[high]:g} ({high}).")
    return notes


def check_description(methods: Mapping[str, MethodSettings], varies: list[str]) -> list[LedgerEntry]:
    """One entry for each factor that a description can state."""
    texts: Settings = {name: settings_as_text(method) for name, method in methods.items()}
    required = check_requirements(methods)
    entries = []
    for factor in FACTORS.values():
        if factor.name in required:
            entries.append(required[factor.name])
        elif factor.name == "dimension":
            dims = {
                name: (method.dim, method.bits or FLOAT_BITS) if method.dim else None
                for name, method in methods.items()
            }
            entries.append(compare_dimensions(factor, "dim", dims, varies))
        elif factor.fields:
            entries.append(compare_factor(factor, factor.fields, texts, varies, optional=factor.optional))
    return entries


def settings_as_text(method: MethodSettings) -> dict[str, str | None]:
    """The settings of a method as text, steps and epochs as one budget."""
    limits = {"steps": method.steps, "epochs": method.epochs}
    budget = ", ".join(f"{count:,} {unit}" for unit, count in limits.items() if count is not None)
    return {**{key: to_text(value) for key, value in method}, "budget": budget or None}


def to_text(value: object) -> str | None:
    """A setting as text; None where it is not stated."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:,}" if isinstance(value, int) else None if value is None else str(value)


def check_requirements(methods: Mapping[str, MethodSettings]) -> dict[str, LedgerEntry]:
    """The entries for requirements on each single method."""
    runs = sorted({method.repetitions for method in methods.values() if method.repetitions})
    chosen = sorted({method.selected_on for method in methods.values() if method.selected_on})
    duplicates = max((method.near_duplicates or 0 for method in methods.values()), default=0)

    def require(factor: FactorName, key: str, is_met: Requirement, *, met_text: str, violated_text: str) -> LedgerEntry:
        """The methods that violate a requirement (False), else those that do not state its key (None)."""
        results = {name: is_met(method) for name, method in methods.items()}
        faulty, unstated = (tuple(name for name in results if results[name] is outcome) for outcome in (False, None))
        names = faulty or unstated
        status: EntryStatus = "violated" if faulty else "not stated" if unstated else "met"
        finding = violated_text if faulty else f"{key} is not stated" if unstated else met_text
        suffix = f" for {join_names(names)}" if 0 < len(names) < len(results) else ""
        return LedgerEntry(factor=factor, status=status, finding=finding + suffix, methods=names)

    entries = (
        require(
            "intervals",
            "intervals or repetitions",
            has_interval,
            met_text=f"intervals over {' or '.join(map(str, runs))} runs",
            violated_text="no intervals",
        ),
        require(
            "selection",
            "selected_on",
            lambda method: method.selected_on and method.selected_on != "test classes",
            met_text=f"selected on {' or '.join(chosen)}",
            violated_text="selected on test classes",
        ),
        require(
            "classes",
            "disjoint_classes",
            lambda method: method.disjoint_classes,
            met_text="no class in two parts",
            violated_text="classes in two parts",
        ),
        require(
            "near_duplicates",
            "near_duplicates",
            lambda method: None if method.near_duplicates is None else method.near_duplicates == 0,
            met_text="no image in two parts",
            violated_text=f"{duplicates:,} images in two parts",
        ),
    )
    return {entry.factor: entry for entry in entries}


def has_interval(method: MethodSettings) -> bool | None:
    """Whether a figure has an interval over several runs; None where that is not stated."""
    if method.intervals is False or method.repetitions in (0, 1):
        return False
    return None if method.repetitions is None else method.intervals


def example_names() -> list[str]:
    """The comparisons of the literature that are part of the package."""
    folder = files("equimetric").joinpath(EXAMPLES)
    return sorted(Path(file.name).stem for file in folder.iterdir() if file.name.endswith(".toml"))


def load_example(name: str) -> ComparisonDescription:
    """The description of a comparison that is part of the package."""
    if name not in example_names():
        raise unknown_name("example of a comparison", name, example_names())
    return load_config(Path(str(files("equimetric").joinpath(EXAMPLES, f"{name}.toml"))), ComparisonDescription)
