"""The table [search] of a study: what is tuned, in which ranges, by which search."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from equimetric.configuration import Strict
from equimetric.search_space import Choice, Integer, LogUniform, SearchSpace, Uniform

__all__ = ["SearchConfig", "SpaceConfig"]


class SpaceConfig(Strict):
    """A range as TOML writes it: one of its keys is given."""

    uniform: tuple[float, float] | None = Field(None, strict=False, description="real numbers between two bounds")
    log: tuple[float, float] | None = Field(None, strict=False, description="positive numbers, by order of magnitude")
    integer: tuple[int, int] | None = Field(None, strict=False, description="whole numbers, both bounds included")
    choice: list[float | int | str | bool] | None = Field(None, min_length=1, description="one of these values")

    @model_validator(mode="after")
    def _one_range(self) -> SpaceConfig:
        if sum(value is not None for value in (self.uniform, self.log, self.integer, self.choice)) != 1:
            raise ValueError("a range is { uniform = [low, high] }, { log = … }, { integer = … } or { choice = [ … ] }")
        for bounds in (self.uniform, self.log, self.integer):
            if bounds is not None and not bounds[0] < bounds[1]:
                raise ValueError(f"the lower bound {bounds[0]:g} is not below the upper one, {bounds[1]:g}")
        if self.log is not None and self.log[0] <= 0:
            raise ValueError(f"a range of orders of magnitude begins above 0, not at {self.log[0]:g}")
        return self

    def space(self) -> SearchSpace:
        """The range itself."""
        if self.uniform is not None:
            return Uniform(*self.uniform)
        if self.log is not None:
            return LogUniform(*self.log)
        if self.integer is not None:
            return Integer(*self.integer)
        assert self.choice is not None
        return Choice(tuple(self.choice))


class SearchConfig(Strict):
    """Tuning of every method: by the mean over folds of its best validation score, never on test classes."""

    kind: Literal["bayesian", "random", "grid"] = Field(
        "bayesian",
        description="'bayesian': quasi-random at first, then where improvement is expected; 'random': quasi-random; "
        "'grid': all combinations",
    )
    sampler: Literal["gp", "tpe"] = Field(
        "tpe", description="of a Bayesian search: a Gaussian process, or tree-structured Parzen estimators"
    )
    trials: int = Field(50, ge=1, description="trials of every method; fewer only where its grid has fewer points")
    startup: int = Field(10, ge=1, description="quasi-random trials at the beginning of a Bayesian search")
    points: int = Field(5, ge=2, description="values of each real number in a grid")
    seed: int = Field(10_000, ge=0, description="seed of the first trial; every further one has the next")
    ranges: dict[str, SpaceConfig] = Field(
        default_factory=dict, description="ranges of conditions that are tuned for every method, such as 'optimizer.lr'"
    )
    objective_lr: SpaceConfig | None = Field(
        None, description="range of optimizer.objective_lr, for methods with parameters of their own"
    )
