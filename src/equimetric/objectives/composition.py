"""Build objectives: from parts, with each option passed to the part that owns it, or from a method's name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import TYPE_CHECKING, Any, overload

from torch import Tensor, nn

from equimetric.components import LOSSES, REFERENCES, SELECTIONS, Component, record_of
from equimetric.errors import EquimetricError, did_you_mean, unnamed_option
from equimetric.geometry import BUILT_IN, Geometry, find_geometry
from equimetric.objectives.grammar import flatten_options, parse_method, route_to_terms
from equimetric.objectives.objective import SELECTS_ITSELF, Objective, ObjectiveSum, collect_proxies
from equimetric.objectives.recipe import Context
from equimetric.objectives.weights import check_class_weight
from equimetric.ops.reductions import ROW_REDUCTIONS
from equimetric.option_values import check_options, expected_values, invalid_option
from equimetric.references.base import References
from equimetric.references.proxy_set import NO_PROXIES

if TYPE_CHECKING:
    from equimetric.objectives.method_names import MethodName
    from equimetric.objectives.part_names import GeometryName, ReferencesName, SelectionName
    from equimetric.pairs import Pairs, Selected

__all__ = ["build_objective", "compose", "objective"]


@overload
def objective(
    method: MethodName | Callable[..., Any] | nn.Module,
    *,
    geometry: GeometryName | Geometry | None = None,
    references: ReferencesName | References | None = None,
    selection: SelectionName | Callable[[Pairs], Selected] | None = None,
    **options: Any,
) -> Objective: ...


# Names in variables, and options such as "selection.margin" in a dictionary.
@overload
def objective(method: MethodName | Callable[..., Any] | nn.Module, **options: Any) -> Objective: ...


@overload
def objective(method: str, **options: Any) -> Objective | ObjectiveSum: ...


def objective(method: str | Callable[..., Any] | nn.Module, *unnamed: Any, **options: Any) -> Objective | ObjectiveSum:
    """The objective of a method: `objective("multi_similarity", alpha=2.0)(embeddings, labels)` is a scalar.

    `method` is the name of a recipe, a sum of names such as "contrastive+tcm" or "contrastive + 0.5*tcm", or a loss of
    your own: a function of `Pairs` or a module. `geometry=`, `references=` and `selection=` replace parts. Any other
    option goes to every part that has it; `**{"selection.margin": 0.1}` sets that of one part, as do "loss.margin" and
    "references.size", and in a sum "triplet.margin" or "triplet.selection.margin".
    """
    if unnamed:
        raise unnamed_option("em.objective", unnamed[0], f"em.objective({example_call(method)}=…)")
    if isinstance(method, str):
        return build_objective(method, options)
    return compose(method, **flatten_options(options))


def example_call(method: str | Callable[..., Any] | nn.Module) -> str:
    """A method and the name of one of its options, for an error."""
    if not isinstance(method, str):
        return "loss, selection"
    loss_options = [option for _, recipe in parse_method(method) for option in recipe.parts()[0].options]
    return f"{method!r}, {[*loss_options, 'selection'][0]}"


def build_objective(
    method: str, options: Mapping[str, Any], context: Context | None = None
) -> Objective | ObjectiveSum:
    """Build the objective of a method's name, with options changed and the rest filled in from the context."""
    terms = parse_method(method)
    parts = []
    for (weight, recipe), term_options in zip(
        terms, route_to_terms(method, terms, flatten_options(options)), strict=True
    ):
        defaults = {} if context is None else recipe.context_options(context)
        parts.append((weight, recipe.build(**{**defaults, **term_options})))
    check_proxies(method, [part for _, part in parts])
    if len(parts) == 1 and parts[0][0] == 1.0:
        return parts[0][1]
    return ObjectiveSum(parts)


def check_proxies(method: str, parts: list[Objective]) -> None:
    """Raise an error where a term regularises proxies that no other term learns."""
    missing_proxies = [part.name for part in parts if part.references.needs_proxies]
    if missing_proxies and not collect_proxies(parts):
        raise EquimetricError(f"method {method!r}, term {missing_proxies[0]!r}: {NO_PROXIES}")


def compose(
    loss: str | Callable[..., Any] | nn.Module,
    *,
    name: str | None = None,
    geometry: str | Geometry | None = None,
    references: str | References | None = None,
    selection: str | Callable[..., Any] | nn.Module | None = None,
    normalize: bool | None = None,
    gather: bool = False,
    require_both: bool = False,
    class_weight: Tensor | Sequence[float] | None = None,
    reduction: str | None = None,
    **options: Any,
) -> Objective:
    """An objective from its parts; each further option goes to the part or parts that own it (see `route_options`).

    `loss` is a registered name, a function of `Pairs`, or a module, and so is `selection`; `references` are a name or
    an object such as `StaticProxy(dim)`; `geometry` is a name or a `Geometry`. A combination that makes no sense, an
    unknown option and a misspelt name raise an error that explains why. `class_weight` holds a weight for each class
    id. `reduction` goes to a loss that has one of its own; of any other loss whose queries meet only in its final
    mean, and with 'query' of every such loss, it reduces the losses of the queries by themselves: 'query' or 'none' is
    the vector, 'sum', 'batch' (the sum / number of queries), 'mean' or 'valid' (that of queries that have pairs).
    """
    switches = {"normalize": normalize, "gather": gather, "require_both": require_both}
    check_options("objective", compose, switches)
    component = LOSSES.find(loss) if isinstance(loss, str) else wrap_function("loss", loss)
    arguments: dict[str, Any] = {"geometry": geometry, "references": references, "selection": selection}
    resolve_aliases(component, arguments, options)

    geometry_object = find_geometry(arguments["geometry"] or component.geometries[0])
    check_geometry(component, geometry_object)
    references_arg = arguments["references"] or component.reference_kinds[0]
    reference_component = find_references(references_arg)
    check_references(component, reference_component)
    selection_arg = arguments["selection"] or "all"
    selection_component = find_selection(component, selection_arg)

    owners = {"loss": component, "selection": selection_component, "references": reference_component}
    if reduction is not None and "reduction" in component.options and reduction != "query":
        check_own_reduction(component, reduction, per_query=component.per_query or component.is_separable(options))
        options["reduction"], reduction = reduction, None
    valid_names = [*arguments, *switches, "class_weight", "reduction", *component.aliases]
    routed = route_options(name or component.name, owners, options, valid_names)
    separable = component.is_separable(routed["loss"])
    check_weights(component, separable or component.per_query, class_weight, reduction)
    return Objective(
        name or component.name,
        loss=loss if isinstance(loss, nn.Module) else component.build(routed["loss"]),
        geometry=geometry_object,
        references=build_references(references_arg, reference_component, routed["references"]),
        selection=build_selection(selection_arg, selection_component, routed["selection"]),
        takes=component.takes,
        normalize=component.normalize if normalize is None else normalize,
        gather=gather,
        require_both=require_both,
        # Without a final reduction there is no ratio to sum up.
        separable=separable
        and selection_component.is_separable(routed["selection"])
        and "none" not in (routed["loss"].get("reduction"), reduction)
        and reduction != "query",
        class_weight=check_class_weight(class_weight),
        no_weights_reason=component.exempt.get("sample weights"),
        reduction="none" if reduction == "query" else reduction,
    )


def check_references(loss: Component, references: Component) -> None:
    """Raise an error for references that the loss is not defined for."""
    if not {references.name, *references.substitutes_for} & set(loss.reference_kinds):
        raise EquimetricError(
            f"loss {loss.name!r} makes no sense with references {references.name!r}; "
            f"it is defined for: {', '.join(loss.reference_kinds)}"
        )


def find_selection(loss: Component, selection: str | Callable[..., Any] | nn.Module) -> Component:
    """The component of a selection; an error where the loss takes none."""
    if loss.takes == "batch" and selection != "all":
        raise EquimetricError(f"loss {loss.name!r} {SELECTS_ITSELF}; use selection='all'")
    return SELECTIONS.find(selection) if isinstance(selection, str) else wrap_function("selection", selection)


def check_weights(loss: Component, per_query: bool, class_weight: Any, reduction: str | None) -> None:
    """Raise an error where a loss takes no weights, or has no value for each query that could be reduced."""
    if class_weight is not None and "sample weights" in loss.exempt:
        raise EquimetricError(f"loss {loss.name!r} takes no weights: {loss.exempt['sample weights']}; leave them out")
    if reduction is None:
        return
    if not per_query:
        raise EquimetricError(
            f"loss {loss.name!r} has no reduction {reduction!r}: it scores the batch as a whole and no query "
            "by itself; leave reduction out"
        )
    if reduction not in ("query", *ROW_REDUCTIONS):
        raise invalid_option(
            f"loss {loss.name!r}", "reduction", reduction, [repr(one) for one in ("query", *ROW_REDUCTIONS)]
        )


def check_own_reduction(loss: Component, reduction: Any, *, per_query: bool) -> None:
    """Raise an error for a reduction that a loss with reductions of its own has not; 'query' may be one more."""
    expected = expected_values(loss.definition, "reduction", reduction)
    if expected:
        also = ["'query'"] if per_query else []
        raise invalid_option(f"loss {loss.name!r}", "reduction", reduction, [*also, *expected])


def resolve_aliases(loss: Component, arguments: dict[str, Any], options: dict[str, Any]) -> None:
    """Apply the loss's other names for parts, and the options that imply a selection; changes both dictionaries."""
    for alias, part in loss.aliases.items():
        if alias in options:
            if arguments[part] is not None:
                raise EquimetricError(f"{alias!r} is another name for {part!r}; give one of them, not both")
            arguments[part] = options.pop(alias)
    for option, implied in loss.implies.items():
        for key in (option, f"selection.{option}"):
            if key in options and arguments["selection"] is None:
                if options[key] is None:
                    del options[key]
                else:
                    arguments["selection"] = implied


def check_geometry(loss: Component, geometry: Geometry) -> None:
    """Raise an error where a loss makes no sense in a geometry.

    A loss lists the built-in geometries that it is defined for. A geometry of the user's own must have what these have
    in common: similarities in [−1, 1] where the loss is defined for cosines only, inner products where it is defined
    for these only, a distance where all of them have one. A loss that is defined for both similarities and distances,
    such as `triplet`, takes any.
    """
    if geometry.name in loss.geometries:
        return
    valid_geometries = [find_geometry(name) for name in loss.geometries]
    needs = ""
    if geometry.name in BUILT_IN:
        needs = f"it is defined for: {', '.join(loss.geometries)}"
    elif loss.geometries == ("none",):
        needs = "it reads the embeddings themselves and compares nothing"
    elif all(valid.bounded for valid in valid_geometries):
        needs = "" if geometry.bounded else "it needs similarities in [−1, 1]; set bounded=True if they lie there"
    elif all(valid.inner_product for valid in valid_geometries):
        needs = "" if geometry.inner_product else "it needs inner products; set inner_product=True if they are"
    elif all(valid.to_distance for valid in valid_geometries):
        needs = "" if geometry.to_distance else "it needs a distance; give to_distance=…"
    if needs:
        raise EquimetricError(f"loss {loss.name!r} makes no sense in the {geometry.name} geometry; {needs}")


def route_options(
    name: str, owners: Mapping[str, Component], options: Mapping[str, Any], others: list[str]
) -> dict[str, dict[str, Any]]:
    """The options of each part by role ('loss', 'selection', 'references').

    A bare name goes to every part that has the option; 'selection.margin' goes to the selection alone and takes
    precedence over 'margin'. `others` are further names that an error may suggest.
    """
    routed: dict[str, dict[str, Any]] = {role: {} for role in owners}
    for key in sorted(options, key=lambda key: "." in key):
        role, dot, option = key.rpartition(".")
        roles = [role] if dot and role in owners else [] if dot else list(owners)
        roles = [role_name for role_name in roles if option in owners[role_name].options]
        if not roles:
            valid_names = [
                f"{role}.{option_name}" if dot else option_name
                for role, part in owners.items()
                for option_name in part.options
            ]
            raise EquimetricError(
                f"objective {name!r} has no option {key!r}; {did_you_mean(key, [*valid_names, *others])}"
            )
        for role_name in roles:
            routed[role_name][option] = options[key]
    return routed


def wrap_function(kind: str, function: Callable[..., Any] | nn.Module) -> Component:
    """Make a record for a user's own loss or selection, so that it is composed like the registered ones."""
    if not callable(function):
        raise EquimetricError(
            f"a {kind} is a name, a function of Pairs or a module, not {type(function).__name__} {function!r}"
        )
    check_takes_pairs(kind, function)
    if isinstance(function, nn.Module):
        built = record_of(LOSSES if kind == "loss" else SELECTIONS, function)
        if built is not None:
            return built
    # A module has its options already and takes no more.
    definition = (lambda: function) if isinstance(function, nn.Module) else function
    # A partial function has the name of the whole one, a callable object that of its class.
    unwrapped = getattr(function, "func", function)
    name = (
        type(function).__name__
        if isinstance(function, nn.Module)
        else getattr(unwrapped, "__name__", type(unwrapped).__name__)
    )
    geometries = ("cosine", "euclidean", "sqeuclidean", "dot")
    return Component(
        kind,
        name,
        definition,
        "",
        geometries=geometries,
        reference_kinds=tuple(REFERENCES),
        separable=kind == "selection",
    )


def check_takes_pairs(kind: str, function: Callable[..., Any]) -> None:
    """Raise an error for an objective, and for a function without a parameter for the pairs."""
    if isinstance(function, Objective | ObjectiveSum):
        if kind == "loss":
            raise EquimetricError(f"{function.name!r} is an objective already; use it as it is, without em.objective")
        raise EquimetricError(f"{function.name!r} is an objective, no {kind}; give the name of one, or em.{kind}s.…()")
    # A class makes its module from the options.
    if isinstance(function, nn.Module | type):
        return
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_POSITIONAL)
    if not any(parameter.kind in positional for parameter in parameters):
        name = getattr(function, "__name__", "function")
        raise EquimetricError(
            f"{kind} {name!r} has no argument that takes the pairs; to use what it makes, call it: {name}(…)"
        )


def build_selection(selection: Any, component: Component, options: dict[str, Any]) -> nn.Module:
    """Build a selection with the options, or return the given module."""
    return selection if isinstance(selection, nn.Module) else component.build(options)


def find_references(references: str | References) -> Component:
    """The record of a kind of references, by name or of an object of that kind."""
    if isinstance(references, str):
        return REFERENCES.find(references)
    for component in REFERENCES.values():
        if isinstance(component.definition, type) and isinstance(references, component.definition):
            return component
    raise EquimetricError(f"references are a name or an object of a registered kind, not {type(references).__name__}")


def build_references(references: str | References, component: Component, options: dict[str, Any]) -> References:
    """Build references with the options, or return the given object."""
    if isinstance(references, str):
        built = component.build(options)
        if not isinstance(built, References):
            raise EquimetricError(f"references {component.name!r} must be a subclass of References")
        return built
    if options:
        raise EquimetricError(f"the references are made already, so {', '.join(options)} cannot be set; set them there")
    return references
