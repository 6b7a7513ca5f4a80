"""A recipe: a method of the literature as one row that fixes the parts of an objective and their options.

Plain data, importable without torch; what a row inherits from its parts is looked up in the registries on demand.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from equimetric.errors import EquimetricError
from equimetric.search_space import SearchSpace

if TYPE_CHECKING:
    from equimetric.components import Component
    from equimetric.objectives.objective import Objective

__all__ = ["PARTS", "ROLES", "Context", "Recipe"]

PARTS = ("geometry", "references", "selection")
"""Parts of an objective that an option of this name replaces."""

SWITCHES = ("normalize", "gather", "require_both", "class_weight")
"""Options of the objective itself."""

ROLES = ("loss", "selection", "references")
"""Parts that take options; `role.option` names the option of one of them."""


@dataclass(frozen=True)
class Context:
    """Sizes that an objective takes from the data and the model."""

    classes: int
    dim: int
    images: int


@dataclass(frozen=True)
class Recipe:
    """A named method: a loss with the parts and options that the paper gives it.

    Attributes:
        name: the argument of `objective(name)`.
        title: the name in tables.
        loss: the registered loss; the other parts default to those that the loss lists first.
        geometry, references, selection: parts that differ from the loss's own defaults.
        options: option values that differ from the parts' defaults.
        context: options that come from the data (number of classes, dimension, number of images).
        ranges: search ranges that differ from those of the parts.
        note: one line on how it differs from its loss.
        source: the paper of the recipe, where it is not that of its parts.
        known_as: names in other libraries and papers, for which an error suggests this method.

    """

    name: str
    title: str
    loss: str
    geometry: str | None = None
    references: str | None = None
    selection: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, SearchSpace] = field(default_factory=dict)
    note: str = ""
    source: str = ""
    known_as: tuple[str, ...] = ()

    def parts(self) -> tuple[Component, Component, Component]:
        """The records of loss, selection and references."""
        from equimetric.components import LOSSES, REFERENCES, SELECTIONS

        loss = LOSSES[self.loss]
        return loss, SELECTIONS[self.selection or "all"], REFERENCES[self.references or loss.reference_kinds[0]]

    @property
    def stands_alone(self) -> bool:
        """Whether the method is an objective by itself, not only a term of a sum."""
        return not any("alone" in part.exempt for part in self.parts())

    @property
    def family(self) -> str:
        """The loss's family."""
        return self.parts()[0].family

    @property
    def paper(self) -> str:
        """The paper of the recipe, or else of the loss and, where it has one, of the selection."""
        if self.source:
            return self.source
        loss, selection, _ = self.parts()
        papers = dict.fromkeys(paper for part in (loss, selection) for paper in part.paper.split("; ") if paper)
        return "; ".join(papers)

    @property
    def year(self) -> int | None:
        """The year of the paper, the first where it is of several."""
        years = re.findall(r"\((\d{4})\)", self.paper)
        return int(years[0]) if years else None

    @property
    def defaults(self) -> dict[str, Any]:
        """Every option with its default, except options that come from the data."""
        merged: dict[str, Any] = {}
        for component in reversed(self.parts()):
            merged.update(component.options)
        merged.update(self.options)
        return {name: value for name, value in merged.items() if value is not inspect.Parameter.empty}

    @property
    def search(self) -> dict[str, SearchSpace]:
        """The range of each tunable option.

        Of the references, only options that the recipe sets: ArcFace with several centres per class is another method.
        """
        loss, selection, references = self.parts()
        reference_ranges = {option: space for option, space in references.search.items() if option in self.options}
        # A shared option stays in the selection's range.
        return {**reference_ranges, **loss.search, **selection.search, **self.ranges}

    def known_options(self) -> set[str]:
        """Every option name that `build` may take, also with other parts; qualified names included."""
        from equimetric.components import REFERENCES, SELECTIONS

        loss = self.parts()[0]
        owners = {"loss": [loss], "selection": SELECTIONS.values(), "references": REFERENCES.values()}
        return {*PARTS, *SWITCHES, "reduction", *loss.aliases, *qualify_options(owners)}

    def accepts_option(self, option: str) -> bool:
        """Whether `option` belongs to this method with its present parts, or replaces one of them."""
        loss, selection, references = self.parts()
        part_options = qualify_options({"loss": [loss], "selection": [selection], "references": [references]})
        implied = qualify_implied(loss)
        return option in {*PARTS, *SWITCHES, *loss.aliases, *implied, *part_options}

    def context_options(self, context: Context) -> dict[str, Any]:
        """The options that come from the data, e.g. {'classes': 100, 'dim': 64} for a method with proxies."""
        required = {
            name: name
            for part in self.parts()
            for name, default in part.options.items()
            if default is inspect.Parameter.empty
        }
        # What else a loss of the user's own requires, `build` asks for.
        wanted = {option: source for option, source in {**required, **self.context}.items() if hasattr(context, source)}
        return {option: getattr(context, source) for option, source in wanted.items()}

    def build(self, **options: Any) -> Objective:
        """Build the objective, with some options changed."""
        from equimetric.objectives.composition import compose

        option_names = {option.rpartition(".")[2] for option in options}
        missing = [option for option in self.context if option not in option_names]
        if missing:
            raise EquimetricError(f"method {self.name!r} needs {', '.join(f'{option}=…' for option in missing)}")
        parts = {"geometry": self.geometry, "references": self.references, "selection": self.selection}
        return compose(self.loss, name=self.name, **{**parts, **self.own_options(options), **options})

    def own_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options that the recipe sets, without those of a selection or references that `options` replace."""
        loss, selection, references = self.parts()
        resolved = {loss.aliases.get(option, option): value for option, value in options.items()}
        parts = [loss]
        parts += [
            part
            for role, part in (("selection", selection), ("references", references))
            if resolved.get(role, part.name) == part.name
        ]
        return {
            option: value for option, value in self.options.items() if any(option in part.options for part in parts)
        }


def qualify_options(owners: Mapping[str, Iterable[Component]]) -> set[str]:
    """The option names of the parts in each role, bare and as `role.option`."""
    return {
        name
        for role, parts in owners.items()
        for part in parts
        for option in part.options
        for name in (option, f"{role}.{option}")
    }


def qualify_implied(loss: Component) -> set[str]:
    """The options that switch a selection on, bare and as `selection.option`."""
    return {name for option in loss.implies for name in (option, f"selection.{option}")}
