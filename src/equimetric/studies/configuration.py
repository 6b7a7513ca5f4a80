"""The configuration of a study: methods × seeds (× folds × trials) under equal conditions."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from pydantic import Field, field_validator, model_validator

from equimetric.batches import BATCHES
from equimetric.configuration import Options, Strict
from equimetric.families import FAMILIES
from equimetric.runs.configuration import Conditions, LearnerConfig
from equimetric.studies.search_config import SearchConfig, SpaceConfig

__all__ = ["ArmConfig", "Baseline", "MethodConfig", "StatisticsConfig", "StudyConfig", "SweepConfig", "is_condition"]

Baseline: TypeAlias = Literal["raw_pixels", "raw_features", "pretrained", "untrained"]

STUDY_FILES = ("study.toml", "data.json", "index.jsonl", "index.json", "ledger.json", "report")
"""Files and folders of a study besides the folders of its rows."""

RESERVED_NAMES = {"con", "prn", "aux", "nul", *(f"{device}{n}" for device in ("com", "lpt") for n in range(1, 10))}
"""Names that some systems reserve for devices, with any extension."""

MAX_NAME_BYTES = 200
"""Bytes; file systems take 255, and files beside the folder have longer names."""

ALWAYS_VARIED = ("optimizer.objective_lr",)
"""Conditions in which methods may differ in every study: a loss with parameters of its own needs its own rate."""


def is_condition(key: str) -> bool:
    """Whether a dotted key belongs to the conditions of a study; any other is an option of a method."""
    return key.partition(".")[0] in Conditions.model_fields


class MethodConfig(Strict):
    """Settings that may differ between the methods of a study."""

    method: str = Field(
        "", description="name of the method, or a loss of your own, 'my_losses:gap'; default: the name of the table"
    )
    options: Options = Field(default_factory=dict, description="options of the method")
    learner: LearnerConfig = Field(default_factory=LearnerConfig)
    objective_lr: float | None = Field(None, gt=0, description="learning rate of the objective's own parameters")
    conditions: Options = Field(
        default_factory=dict,
        description="conditions of this method alone, among those that the study varies: { 'batch.classes' = 32 }",
    )
    search: dict[str, SpaceConfig] | None = Field(
        None, description="ranges that a search tunes, by option; default: those of the method"
    )

    @classmethod
    def explain_unknown(cls, path: str, key: str) -> str:
        """Point a condition to the tables of the whole study."""
        if key in Conditions.model_fields:
            return (
                f"{path}: {key!r} may not differ between methods, because the comparison would be unfair; "
                f"set it once for the whole study as [{key}]"
            )
        return super().explain_unknown(path, key)


class ArmConfig(Strict):
    """A second row of each method, with something added: 'contrastive' and 'contrastive+tcm'."""

    add: str = Field("", description="a term that is added to the method's objective, such as 'tcm' or '0.5*tcm'")
    options: Options = Field(default_factory=dict, description="options of the new row, such as 'tcm.margin'")
    learner: LearnerConfig | None = Field(None, description="learner of the new row; default: that of the method")
    conditions: Options = Field(default_factory=dict, description="conditions among those that the study varies")
    of: list[str] | None = Field(None, description="rows that get the arm; default: all methods")


class SweepConfig(Strict):
    """Further points at which every method is trained and tested: other values of conditions than the study's."""

    title: str = Field("", description="what is swept, for tables and figures")
    key: str = Field("", description="a condition such as 'model.dim'")
    values: list[Any] = Field(default=[], description="its values")
    chain: bool = Field(False, description="a run starts with the network of the run at the point before it")
    points: dict[str, Options] = Field(
        default_factory=dict, description="instead of key and values: label → conditions, where several change together"
    )
    kinds: dict[str, dict[str, Options]] = Field(
        default_factory=dict,
        description="kind of batches, or family of methods → its own points in place of these, where batches of that "
        "kind have another shape, or methods of that family other points",
    )

    @model_validator(mode="after")
    def _has_points(self) -> SweepConfig:
        if bool(self.key) != bool(self.values) or bool(self.key) == bool(self.points):
            raise ValueError("give key and values, or points")
        if self.key and not is_condition(self.key):
            raise ValueError(f"{self.key!r} is no condition of a study; a sweep changes keys such as 'model.dim'")
        for kind, points in self.kinds.items():
            if kind not in FAMILIES and kind not in BATCHES:
                known = ", ".join([*FAMILIES, *BATCHES])
                raise ValueError(
                    f"kinds: {kind!r} is neither a family of methods nor a kind of batches; known: {known}"
                )
            changed = {key for conditions in points.values() for key in conditions}
            if any(key.partition(".")[0] == "data" for key in changed):
                raise ValueError(
                    f"kinds.{kind} changes the data, which are the same for all methods; change them in points"
                )
        return self

    def settings(self, *kinds: str) -> dict[str, dict[str, Any]]:
        """Label → conditions of each point, for methods of the first of these kinds that has points of its own."""
        for kind in kinds:
            if kind in self.kinds:
                return self.kinds[kind]
        return self.points or {f"{self.key.rpartition('.')[2]} {value}": {self.key: value} for value in self.values}

    def labels(self) -> list[str]:
        """The labels of all kinds, one that few have standing before the next one that all have."""
        labels = list(self.settings())
        for points in self.kinds.values():
            place = len(labels)
            for label in reversed(points):
                if label not in labels:
                    labels.insert(place, label)
                place = labels.index(label)
        return labels


class StatisticsConfig(Strict):
    """Settings of the statistical comparison."""

    estimand: Literal["seeds and classes", "seeds"] = Field(
        "seeds and classes",
        description="what intervals are for: new seeds and new classes, or new seeds with these test classes",
    )
    equivalence: float = Field(
        0.5, ge=0, description="differences up to this many points are practically equal; fixed before the study"
    )
    confidence: float = Field(0.95, gt=0, lt=1, description="of the intervals")
    baseline: str | None = Field(None, description="row that all others are compared with; default: the first method")


class StudyConfig(Conditions):
    """A fair comparison: methods × seeds (× folds × trials) under equal conditions."""

    name: str = Field(description="name of the study and of its folder under the output folder")
    title: str = Field("", description="title of the report")
    protocol: str = Field("quick", description="a name of `equimetric protocols`, or a file of your own")
    protocol_version: int = Field(0, description="version of the protocol, filled in from it")
    departures: dict[str, str] = Field(
        default_factory=dict, description="where the study differs from its protocol, filled in"
    )
    seeds: list[int] = Field(
        default=[0, 1, 2, 3, 4], min_length=1, description="one repetition of all methods for each"
    )
    cross_validation: bool = Field(
        False, description="train a model for each of data.folds in every repetition, not for data.fold alone"
    )
    baselines: list[Baseline] | None = Field(
        None,
        description="untrained rows: raw_pixels, raw_features, pretrained (features reduced by PCA to the dimension of "
        "embeddings), untrained; default: those the data allow",
    )
    plugins: list[str] = Field(
        default=[],
        description="files, beside this one, or modules with components of your own: plugins = ['my_losses.py']",
    )
    methods: dict[str, MethodConfig] = Field(min_length=1, description="one table for each method")
    families: dict[str, Options] = Field(
        default_factory=dict, description="conditions of all methods of a family, among those that the study varies"
    )
    arms: dict[str, ArmConfig] = Field(default_factory=dict, description="second rows of methods, by name")
    search: SearchConfig | None = Field(None, description="tune every method on validation classes first")
    sweeps: dict[str, SweepConfig] = Field(default_factory=dict, description="sweeps that may be chosen, by name")
    sweep: list[str] = Field(default=[], description="sweeps that are run beside the study itself")
    varies: list[str] = Field(default=[], description="conditions in which methods may differ, such as 'batch.classes'")
    waivers: dict[str, str] = Field(
        default_factory=dict, description="cause of unfairness → why it is accepted; printed with every table"
    )
    statistics: StatisticsConfig = Field(default_factory=StatisticsConfig)
    probes: list[str] = Field(default=[], description="further measurements of final runs: conditions, few-shot, …")
    workers: int = Field(2, ge=1, description="runs in parallel, each in its own process")

    @field_validator("name")
    @classmethod
    def _name_is_a_folder(cls, name: str) -> str:
        return check_folder_name(name)

    @field_validator("methods")
    @classmethod
    def _methods_are_folders(cls, methods: dict[str, MethodConfig]) -> dict[str, MethodConfig]:
        for name in methods:
            # Some file systems do not tell capitals from small letters.
            if check_folder_name(name).casefold() in (*get_args(Baseline), *STUDY_FILES):
                raise ValueError(f"{name!r} names a baseline or a file of the study; choose another name")
        return methods

    @field_validator("seeds")
    @classmethod
    def _seeds_differ(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds) or min(seeds) < 0:
            raise ValueError("seeds must be different integers, 0 or larger")
        return seeds

    @model_validator(mode="after")
    def _only_declared_conditions_vary(self) -> StudyConfig:
        varied = (*self.varies, *ALWAYS_VARIED)
        for table, key in self._changed_conditions():
            if not is_condition(key):
                raise ValueError(f"{table}: {key!r} is no condition of a study, such as 'batch.classes'")
            if not any(key == condition or key.startswith(f"{condition}.") for condition in varied):
                raise ValueError(
                    f"{table} changes {key!r}, because of which the comparison would be unfair; set it once for the "
                    f"whole study, or declare that it varies: varies = ['{key}']"
                )
        return self

    @model_validator(mode="after")
    def _names_exist(self) -> StudyConfig:
        for name in self.sweep:
            if name not in self.sweeps:
                raise ValueError(f"there is no sweep {name!r}; known: {', '.join(self.sweeps) or 'none'}")
        for arm, config in self.arms.items():
            for row in config.of or ():
                if row not in self.methods:
                    raise ValueError(f"arms.{arm}.of names {row!r}, which is no method of the study")
            if any(f"{row}+{arm}" in self.methods for row in self.methods):
                raise ValueError(f"arm {arm!r} would have the name of a method; choose another")
            check_folder_name(arm)
        return self

    @field_validator("probes")
    @classmethod
    def _probes_exist(cls, probes: list[str]) -> list[str]:
        from equimetric.studies.probes.probe import PROBES

        for name in probes:
            PROBES.find(name)
        return probes

    @model_validator(mode="after")
    def _search_has_seeds_of_its_own(self) -> StudyConfig:
        if self.search is not None:
            trials = range(self.search.seed, self.search.seed + self.search.trials)
            if any(seed in trials for seed in self.seeds):
                raise ValueError(f"search.seed = {self.search.seed}: trials must not share seeds with the repetitions")
        return self

    def _changed_conditions(self) -> list[tuple[str, str]]:
        """(table, key) of every condition that a row changes."""
        conditions = [(f"families.{name}", key) for name, table in self.families.items() for key in table]
        conditions += [(f"methods.{name}", key) for name, method in self.methods.items() for key in method.conditions]
        conditions += [(f"arms.{name}", key) for name, arm in self.arms.items() for key in arm.conditions]
        searched = {"search": self.search.ranges} if self.search else {}
        searched |= {f"methods.{name}.search": method.search for name, method in self.methods.items() if method.search}
        conditions += [(name, key) for name, table in searched.items() for key in table if is_condition(key)]
        return conditions

    def conditions(self) -> dict[str, Any]:
        """The part that all runs share."""
        return self.model_dump(include=set(Conditions.model_fields))

    def folds(self) -> list[int]:
        """The folds of every repetition."""
        return list(range(self.data.folds)) if self.cross_validation else [self.data.fold]


def check_folder_name(name: str) -> str:
    """The name, if it can be a folder inside the run tree, on any system."""
    is_valid = all(c.isalnum() or c in "._-+ " for c in name) and name == name.strip()
    if not name or name.startswith(".") or name.endswith(".") or not is_valid:
        raise ValueError(f"{name!r} cannot be a folder name; use letters, digits and . _ - +")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise ValueError(f"{name[:20] + '…'!r} is too long for a folder name; use at most {MAX_NAME_BYTES} letters")
    if name.casefold().partition(".")[0] in RESERVED_NAMES:
        raise ValueError(f"{name!r} is a device on some systems and cannot be a folder name; choose another")
    return name
