"""A page for each method: formula, weight curve, parts, options with ranges, paper, published numbers beside ours."""

import inspect
import json
import warnings
from collections.abc import Iterable
from functools import cache

from equimetric.components import FAMILIES, LOSSES, format_value
from equimetric.errors import EquimetricError
from equimetric.explain import WeightCurves, weight_curves
from equimetric.objectives import Context, build_objective
from equimetric.objectives.recipe import Recipe
from equimetric.objectives.recipes import recipes
from equimetric.published import PublishedResult, select_results
from equimetric.published.names import PAPERS
from equimetric.search_space import Choice, LogUniform, SearchSpace
from website.explaining import batch_figure
from website.figures import curve_figure
from website.formulas import typeset
from website.our_results import OurResult, our_results

__all__ = ["method_pages", "weight_gallery"]

POINTS = 81
"""Of a weight curve."""

SHOWN = ("P@1", "R@1", "RP", "MAP@R", "NMI", "OPIS")
SIZES = Context(classes=100, dim=128, images=5000)
"""Of the data in examples."""

KEY = "positive solid, negative dashed"


def method_pages() -> dict[str, tuple[str, str]]:
    """Every method in the group of its family, after an index of all."""
    every = sorted(recipes().values(), key=lambda recipe: recipe.title.lower())
    pages = {"methods/index.md": ("Methods", index_page(every))}
    for family in FAMILIES:
        for recipe in every:
            if recipe.family == family:
                pages[page_of(recipe)] = (f"{family_title(family)}\n{recipe.title}", method_page(recipe))
    return pages


def family_title(family: str) -> str:
    """A family as a heading."""
    return family.capitalize().replace("Ap-", "AP-")


def page_of(recipe: Recipe) -> str:
    """The file of a method's page."""
    return f"methods/{recipe.name}.md"


def index_page(every: Iterable[Recipe]) -> str:
    """A table of all methods, family by family."""
    lines = [
        "# Methods",
        "",
        "Every name can be given to `em.objective(name, **options)` and to `method = …` of a configuration, and names"
        ' add up: `"contrastive+tcm"`. Each page has the formula, the weight it gives to a pair, its options with the'
        " ranges that tuning searches, and what was published beside what was measured here.",
    ]
    for family, meaning in FAMILIES.items():
        lines += ["", f"## {family_title(family)}", "", f"A method of this family {meaning}.", ""]
        lines += ["| method | name | in one sentence |", "|---|---|---|"]
        for recipe in every:
            if recipe.family == family:
                lines.append(f"| [{recipe.title}]({recipe.name}.md) | `{recipe.name}` | {summary(recipe)} |")
    return "\n".join(lines) + "\n"


def summary(recipe: Recipe) -> str:
    """The first sentence of the loss, or how the recipe differs from it."""
    loss = LOSSES[recipe.loss]
    text = (recipe.note.capitalize() or loss.summary).rstrip(".")
    return typeset(text, loss.options).replace("|", "&#124;")


def method_page(recipe: Recipe) -> str:
    """One method."""
    loss, selection, references = recipe.parts()
    first, *paragraphs = (inspect.getdoc(loss.definition) or "").split("\n\n")
    geometry = recipe.geometry or loss.geometries[0]
    note = f"{recipe.note.capitalize()}.\n\n" if recipe.note else ""
    formula = "\n\n".join(f"<p>{typeset(paragraph, loss.options)}</p>" for paragraph in paragraphs)
    return (
        f"# {recipe.title}\n\n<p>{typeset(first, loss.options)}</p>\n\n{note}{formula}\n\n"
        f"| geometry | references | selection |\n|---|---|---|\n"
        f"| `{geometry}` | `{references.name}` | `{selection.name}` |\n\n"
        f"```python\nimport equimetric as em\n\nobjective = {construction(recipe)}\n```\n\n"
        f"{recipe.paper}.\n\n{curve_section(recipe)}{option_section(recipe)}{number_section(recipe)}"
    )


def construction(recipe: Recipe) -> str:
    """How the method is built in a loop; a term is added to a loss; sizes that come from the data are examples."""
    name = recipe.name
    sizes = recipe.from_context(SIZES)
    if not recipe.stands_alone:
        base = "arcface" if recipe.parts()[2].name == "proxy_set" else "contrastive"
        name = f"{base}+0.1*{name}"
        sizes |= recipes()[base].from_context(SIZES)
    return f"em.objective({', '.join([json.dumps(name), *(f'{option}={size}' for option, size in sizes.items())])})"


def curve_section(recipe: Recipe) -> str:
    """The weight of a pair against its similarity, where the loss has such a weight."""
    curves = method_curves(recipe.name)
    if curves is None:
        return batch_section(recipe)
    caption = f"{KEY}; one pair of the other kind at 0.5"
    return (
        "## Weight of a pair\n\n"
        "How hard the loss pulls a positive, or pushes a negative, of an anchor:"
        " see [the weight view](../understand/weights.md).\n\n"
        f"{curve_figure(curves, caption)}\n\n"
    )


def batch_section(recipe: Recipe) -> str:
    """The weights in a batch, where the loss reads it as a whole; empty where pairs have no weights."""
    figure = batch_figure(recipe.name, "positives green, negatives orange")
    if not figure:
        return ""
    return (
        "## Weights in a batch\n\n"
        "The loss reads a batch as a whole, so a pair has no weight of its own. Here is the weight of every pair in one"
        " batch of eight classes with four samples each: see [the weight view](../understand/weights.md).\n\n"
        f"{figure}\n\n"
    )


@cache
def method_curves(name: str) -> WeightCurves | None:
    """The curves of a method with its default options; None where it reads more than similarities of pairs."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            objective = build_objective(name, {}, Context(classes=4, dim=64, images=16))
            curves = weight_curves(objective, points=POINTS)
    except EquimetricError:
        return None
    moves = float(curves.positive.abs().max() + curves.negative.abs().max())
    return curves if 0 < moves < float("inf") else None


def weight_gallery() -> str:
    """The curve of every method of pairs, or its weights in a batch, one figure each."""
    figures = []
    for recipe in sorted(recipes().values(), key=lambda recipe: recipe.title.lower()):
        curves, link = method_curves(recipe.name), f'<a href="../methods/{recipe.name}.html">{recipe.title}</a>'
        figures.append(curve_figure(curves, link) if curves is not None else batch_figure(recipe.name, link))
    return f'<div class="gallery">{"".join(figures)}</div>'


def option_section(recipe: Recipe) -> str:
    """Options with defaults and search ranges."""
    if not recipe.defaults:
        return ""
    rows = "\n".join(
        f"| `{name}` | `{format_value(value)}` | {describe_range(recipe.search.get(name))} |"
        for name, value in recipe.defaults.items()
    )
    return f"## Options\n\n| option | default | searched by tuning |\n|---|---|---|\n{rows}\n\n"


def describe_range(space: SearchSpace | None) -> str:
    """A search range in words."""
    if space is None:
        return ""
    if isinstance(space, Choice):
        return ", ".join(f"`{format_value(value)}`" for value in space.values)
    scale = ", logarithmic" if isinstance(space, LogUniform) else ""
    return f"{space.low:g} to {space.high:g}{scale}"


def number_section(recipe: Recipe) -> str:
    """Published numbers and ours."""
    ours = [result for result in our_results() if result.method == recipe.name]
    published = [
        result
        for result in select_results()
        if result.our_method == recipe.name and result.value is not None and result.metric in SHOWN
    ]
    if not ours and not published:
        return "## Numbers\n\nNeither in the published tables that we have nor in [our results](../results/index.md).\n"
    parts = ["## Numbers\n", "Conditions differ between tables: compare within one, not across.\n"]
    if ours:
        parts += ["**Measured here** (MAP@R and Recall@1 in percent):\n", our_table(ours)]
    if published:
        parts += ["**Published** (in percent, OPIS in thousandths):\n", published_table(published)]
    return "\n".join(parts) + "\n"


def our_table(ours: Iterable[OurResult]) -> str:
    """Our rows, each with the page it comes from."""
    lines = ["| study | MAP@R | Recall@1 |", "|---|---:|---:|"]
    lines += [f"| [{one.table}](../results/{one.page}/index.md) | {one.map_at_r} | {one.recall_at_1} |" for one in ours]
    return "\n".join(lines) + "\n"


def published_table(published: Iterable[PublishedResult]) -> str:
    """One row for each paper and setting, one column for each metric that occurs."""
    settings: dict[tuple[str, ...], dict[str, str]] = {}
    for result in published:
        width = f" ± {result.half_width:g}" if result.half_width is not None else ""
        mark = " (doubtful)" if result.doubtful else " (quoted)" if result.quoted else ""
        setting = (
            result.paper,
            result.dataset,
            result.backbone or "–",
            str(result.dim or "–"),
            result.variant or "",
            result.method,
        )
        settings.setdefault(setting, {})[result.metric] = f"{result.value:g}{width}{mark}"
    metrics = [metric for metric in SHOWN if any(metric in row for row in settings.values())]
    lines = [
        f"| paper | data | backbone | dim | row | {' | '.join(metrics)} |",
        f"|---|---|---|---:|---|{'---:|' * len(metrics)}",
    ]
    for (paper, dataset, backbone, dim, variant, method), row in settings.items():
        name = f"{method}, {variant}" if variant else method
        cells = " | ".join(row.get(metric, "") for metric in metrics)
        lines.append(f"| {PAPERS.get(paper, paper)} | {dataset} | {backbone} | {dim} | {name} | {cells} |")
    return "\n".join(lines) + "\n"
