"""An objective joins a geometry, references, a selection and a loss; objectives add up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

# Importing the rooms registers what lives in them.
import equimetric.losses
import equimetric.references
import equimetric.selection  # noqa: F401
from equimetric.errors import EquimetricError, did_you_mean
from equimetric.geometry import Geometry, find_geometry
from equimetric.pairs import Pairs, Selected, settled
from equimetric.products import full_precision
from equimetric.references.gathered import gather_batch
from equimetric.references.kind import Given, References
from equimetric.references.relation import Labels
from equimetric.registry import LOSSES, REFERENCES, SELECTIONS, Component, find
from equimetric.rowwise import value_by_rows

__all__ = ["Objective", "ObjectiveSum", "compose", "owned_options"]


def connected(value: Tensor, *tensors: Tensor) -> Tensor:
    """A value with a gradient, if only one of 0: where nothing counts, there is no way back to spend time on."""
    if value.requires_grad or not torch.is_grad_enabled():
        return value
    for tensor in tensors:
        if tensor.requires_grad:
            value = torch.add(value, tensor.sum(dtype=value.dtype), alpha=0)
    return value


class Summable(nn.Module):
    """What objectives and their sums share: `a + b`, `2 * a`, and the value of each named term."""

    def terms(self, embeddings: Tensor, labels: Labels, *arguments: Any, **options: Any) -> dict[str, Tensor]:
        """The value of each named term, weighted as it enters the sum."""
        raise NotImplementedError

    def parts(self) -> list[tuple[float, Objective]]:
        """The objectives that are added up, each with its weight."""
        raise NotImplementedError

    def forward(self, embeddings: Tensor, labels: Labels, *arguments: Any, **options: Any) -> Tensor:
        """The scalar to minimise."""
        total = None
        for value in self.terms(embeddings, labels, *arguments, **options).values():
            total = value if total is None else total + value
        assert total is not None
        return total

    def __add__(self, other: Summable) -> ObjectiveSum:
        return ObjectiveSum([*self.parts(), *other.parts()])

    def __mul__(self, weight: float) -> ObjectiveSum:
        return ObjectiveSum([(weight * own, objective) for own, objective in self.parts()])

    __rmul__ = __mul__


class Objective(Summable):
    """geometry × references × selection × loss: `objective(embeddings, labels)` is the scalar to minimise.

    Optionally `objective(embeddings, labels, reference_embeddings, reference_labels, self_mask=…, index=…)`:
    `self_mask` (Q, R) marks references that are the query itself; `index` (Q,) gives each query's place in the
    training set, for losses that keep something per image. With `gather=True` the batches of all processes of
    torch.distributed are one batch.
    """

    def __init__(
        self,
        name: str,
        *,
        loss: nn.Module,
        geometry: Geometry,
        references: nn.Module,
        selection: nn.Module,
        takes: str = "pairs",
        normalize: bool | None = None,
        gather: bool = False,
        rowwise: bool = False,
    ) -> None:
        super().__init__()
        self.name = name
        self.loss = loss
        self.geometry = geometry
        self.references = references
        self.selection = selection
        self.takes = takes
        self.normalize = geometry.normalize if normalize is None else normalize
        self.gather = gather
        self.rowwise = rowwise

    def pairs(
        self,
        embeddings: Tensor,
        labels: Labels,
        reference_embeddings: Tensor | None = None,
        reference_labels: Labels | None = None,
        *,
        self_mask: Tensor | None = None,
        index: Tensor | None = None,
    ) -> Pairs:
        """All pairs of queries and references, before selection, in full precision even under autocast."""
        with full_precision(embeddings.device.type):
            if self.gather:
                if isinstance(labels, tuple):
                    raise EquimetricError("gather=True needs class ids or multi-hot labels, not masks of pairs")
                embeddings, labels, index = gather_batch(embeddings, labels, index)
            given = Given(embeddings, labels, index, reference_embeddings, reference_labels, self_mask)
            pairs: Pairs = self.references(self.geometry, self.normalize, given)
            return pairs

    def select(self, pairs: Pairs) -> Selected:
        """The pairs or triples that count, in the form that the loss reads."""
        with torch.no_grad():
            selected = self.choose(pairs)
            if self.takes == "pairs" and not isinstance(selected, Pairs):
                selected = selected.as_pairs()
        return selected

    def choose(self, pairs: Pairs) -> Selected:
        """What the selection chooses, by similarities in which duplicates tie."""
        selected: Selected
        if pairs.similarity.dtype != torch.float64:
            selected = self.selection(pairs)
            return selected
        selected = self.selection(pairs.replace(similarity=settled(pairs.similarity)))
        if isinstance(selected, Pairs):
            return selected.replace(similarity=pairs.similarity)
        selected.pairs = pairs
        return selected

    def value(self, pairs: Pairs) -> Tensor:
        """The loss of these pairs."""
        return connected(self.bare_value(pairs), pairs.similarity)

    def bare_value(self, pairs: Pairs) -> Tensor:
        """The loss of these pairs, without a gradient where nothing of them counts."""
        with full_precision(pairs.similarity.device.type):
            if self.rowwise:
                return value_by_rows(self.value_at_once, pairs, self.loss.parameters)
            return self.value_at_once(pairs)

    def value_at_once(self, pairs: Pairs) -> Tensor:
        """The loss of these pairs, all rows together."""
        result: Tensor = self.loss(self.select(pairs))
        return result

    def terms(self, embeddings: Tensor, labels: Labels, *arguments: Any, **options: Any) -> dict[str, Tensor]:
        """The one term of this objective, under its name."""
        pairs = self.pairs(embeddings, labels, *arguments, **options)
        if isinstance(self.references, References):
            with full_precision(pairs.similarity.device.type):
                value = self.references.objective_value(self.bare_value, pairs)
        else:
            value = self.bare_value(pairs)
        return {self.name: value if value.requires_grad else connected(value, embeddings, *self.parameters())}

    def parts(self) -> list[tuple[float, Objective]]:
        """The objective itself, with weight 1."""
        return [(1.0, self)]

    def extra_repr(self) -> str:
        """Name and geometry, for `repr`."""
        return f"{self.name!r}, geometry={self.geometry.name!r}, normalize={self.normalize}"


class ObjectiveSum(Summable):
    """A weighted sum of objectives, each term under its own name."""

    def __init__(self, parts: list[tuple[float, Objective]]) -> None:
        super().__init__()
        names: list[str] = []
        for _, objective in parts:
            taken = names.count(objective.name) + sum(name.startswith(f"{objective.name} ") for name in names)
            names.append(f"{objective.name} {taken + 1}" if taken else objective.name)
        self.names = names
        self.weights = [weight for weight, _ in parts]
        self.objectives = nn.ModuleList(objective for _, objective in parts)

    def terms(self, embeddings: Tensor, labels: Labels, *arguments: Any, **options: Any) -> dict[str, Tensor]:
        """The value of each term, times its weight."""
        return {
            name: weight * objective(embeddings, labels, *arguments, **options)
            for name, (weight, objective) in zip(self.names, self.parts(), strict=True)
        }

    def parts(self) -> list[tuple[float, Objective]]:
        """The objectives with their weights."""
        return [(w, o) for w, o in zip(self.weights, self.objectives, strict=True) if isinstance(o, Objective)]

    @property
    def name(self) -> str:
        """The terms' names, joined."""
        return "+".join(self.names)


def user_loss(function: Callable[..., Any] | nn.Module) -> Component:
    """A record for a user's own loss, so that it is composed as the registered ones are."""
    # A module has its options already, and takes no more of them.
    definition = (lambda: function) if isinstance(function, nn.Module) else function
    name = type(function).__name__ if isinstance(function, nn.Module) else function.__name__
    every_geometry = ("cosine", "euclidean", "sqeuclidean", "dot")
    return Component("loss", name, definition, "", geometries=every_geometry, reference_kinds=tuple(REFERENCES))


def owned_options(loss: Component, selection: Component, references: Component) -> dict[str, list[Component]]:
    """Option name → the parts that take it. An option two parts share, such as a margin, goes to both."""
    owners: dict[str, list[Component]] = {}
    for component in (loss, selection, references):
        for option in component.options:
            owners.setdefault(option, []).append(component)
    return owners


def compose(
    loss: str | Callable[..., Any] | nn.Module,
    *,
    name: str | None = None,
    geometry: str | None = None,
    references: str | None = None,
    selection: str | None = None,
    normalize: bool | None = None,
    gather: bool = False,
    **options: Any,
) -> Objective:
    """An objective from named parts; each further option goes to the part or parts that own it.

    `loss` is a registered name, a function of `Pairs`, or a module. A combination that makes no sense, an option
    that no part takes, and a misspelt name are refused with the reason.
    """
    component = find(LOSSES, "loss", loss) if isinstance(loss, str) else user_loss(loss)
    chosen = {"geometry": geometry, "references": references, "selection": selection}
    for alias, part in component.aliases.items():
        if alias in options:
            if chosen[part] is not None:
                raise EquimetricError(f"{alias!r} is another name for {part!r}; give one of them, not both")
            chosen[part] = options.pop(alias)
    for option, implied in component.implies.items():
        if option in options and chosen["selection"] is None:
            if options[option] is None:
                del options[option]
            else:
                chosen["selection"] = implied

    geometry_name = chosen["geometry"] or component.geometries[0]
    found_geometry = find_geometry(geometry_name)
    if geometry_name not in component.geometries:
        raise EquimetricError(
            f"loss {component.name!r} makes no sense in the {geometry_name} geometry; "
            f"it is defined for: {', '.join(component.geometries)}"
        )
    references_name = chosen["references"] or component.reference_kinds[0]
    reference_component = find(REFERENCES, "references", references_name)
    if references_name not in component.reference_kinds:
        raise EquimetricError(
            f"loss {component.name!r} makes no sense with references {references_name!r}; "
            f"it is defined for: {', '.join(component.reference_kinds)}"
        )
    selection_component = find(SELECTIONS, "selection", chosen["selection"] or "all")

    owners = owned_options(component, selection_component, reference_component)
    routed: dict[int, dict[str, Any]] = {id(c): {} for c in (component, selection_component, reference_component)}
    for option, value in options.items():
        if option not in owners:
            known = [*owners, "geometry", "references", "selection", "normalize", "gather", *component.aliases]
            raise EquimetricError(
                f"objective {name or component.name!r} has no option {option!r}; {did_you_mean(option, known)}"
            )
        for owner in owners[option]:
            routed[id(owner)][option] = value
    return Objective(
        name or component.name,
        loss=loss if isinstance(loss, nn.Module) else component.build(routed[id(component)]),
        geometry=found_geometry,
        references=reference_component.build(routed[id(reference_component)]),
        selection=selection_component.build(routed[id(selection_component)]),
        takes=component.takes,
        normalize=component.normalize if normalize is None else normalize,
        gather=gather,
        # Without a final reduction there is no ratio to sum up.
        rowwise=component.is_rowwise(routed[id(component)]) and options.get("reduction") != "none",
    )
