"""A page for each method: formula, weight curve, parts, options with ranges, paper, published numbers beside ours."""

import inspect
import json
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from textwrap import indent

from equimetric.components import FAMILIES, LOSSES, Component, format_value
from equimetric.errors import EquimetricError
from equimetric.explain import WeightCurves, weight_curves
from equimetric.objectives import Context, build_objective
from equimetric.objectives.recipe import Recipe
from equimetric.objectives.recipes import recipes
from equimetric.search_space import Choice, LogUniform, SearchSpace
from website.explaining import batch_figure
from website.figures import curve_figure
from website.formulas import typeset
from website.option_cells import allowed_values, meaning
from website.our_results import OurResult, our_results
from website.papers import linked_papers
from website.published_tables import published_results, published_tables

__all__ = ["method_pages", "weight_gallery"]

POINTS = 81
"""Of a weight curve."""

SIZES = Context(classes=100, dim=128, images=5000)
"""Of the data in examples."""

FULL_TITLES = {
    "a_bier": "Adversarial BIER (A-BIER)",
    "bier": "Boosting independent embeddings robustly (BIER)",
    "dcl": "Decoupled contrastive (DCL)",
    "dreml": "Deep randomized ensembles (DREML)",
    "ephn": "Easy positive, hard negative (EPHN)",
    "fastap": "Fast average precision (FastAP)",
    "gist": "Guided in-sample selection (GIST)",
    "gor": "Global orthogonal regularization (GOR)",
    "hdc": "Hard-aware deeply cascaded (HDC)",
    "hier": "Hierarchical regularization (HIER)",
    "hist": "Hypergraph-induced semantic tuplets (HIST)",
    "hyp": "Hyperbolic cross-entropy (Hyp)",
    "koleo": "Kozachenko–Leonenko (KoLeo)",
    "large_margin_softmax": "Large-margin softmax (L-Softmax)",
    "margin_class": "Margin, a boundary per class (Margin / class)",
    "multi_similarity": "Multi-similarity (MS)",
    "multi_similarity_miner": "Multi-similarity with its miner (MS + Miner)",
    "nca": "Neighbourhood component analysis (NCA)",
    "normalized_softmax": "Normalized softmax (N. Softmax)",
    "ntxent": "Normalized temperature-scaled cross-entropy (NT-Xent)",
    "p2sgrad": "Probability-to-similarity gradient (P2SGrad)",
    "pads": "Policy-adapted sampling (PADS)",
    "pddm": "Position-dependent deep metric (PDDM)",
    "pnp": "Penalizing negatives before positives (PNP)",
    "proxy_nca": "Proxy neighbourhood component analysis (ProxyNCA)",
    "r_margin": "Regularized margin (R-Margin)",
    "raw": "Relative and absolute weights (RAW)",
    "raw_distance_weighted": "RAW with distance-weighted sampling (RAW + DW)",
    "raw_semihard": "RAW with semi-hard sampling (RAW + SemiHard)",
    "raw_vthm": "RAW with valid-triplet hard mining (RAW + VTHM)",
    "recall_at_k_surrogate": "Recall@k surrogate (RS@k)",
    "smooth_ap": "Smooth average precision (Smooth-AP)",
    "snr_contrastive": "Signal-to-noise ratio, contrastive (SNR contrastive)",
    "supcon": "Supervised contrastive (SupCon)",
    "tcm": "Threshold-consistent margin (TCM)",
    "vicreg": "Variance-invariance-covariance regularization (VICReg)",
    "vthm": "Valid-triplet hard mining (VTHM)",
    "xbm": "Cross-batch memory (XBM)",
}
"""Method → its title in words, where the title in tables is an abbreviation."""

KEY = "positive solid, negative dashed"


def method_pages() -> dict[str, tuple[str, str]]:
    """Every method in the group of its family, after an index of all."""
    every = sorted(recipes().values(), key=lambda recipe: full_title(recipe).lower())
    pages = {"methods/index.md": ("Methods", index_page(every))}
    for family in FAMILIES:
        for recipe in every:
            if recipe.family == family:
                pages[page_of(recipe)] = (f"{family_title(family)}\n{full_title(recipe)}", method_page(recipe))
    return pages


def family_title(family: str) -> str:
    """A family as a heading."""
    return family.capitalize().replace("Ap-", "AP-")


def full_title(recipe: Recipe) -> str:
    """The title in words, then the abbreviation that tables have."""
    return FULL_TITLES.get(recipe.name, recipe.title)


def also_called(recipe: Recipe) -> str:
    """The names of a method in papers and other libraries, which a reader may search for."""
    loss = recipe.parts()[0]
    names = loss.known_as if recipe.name == loss.name else recipe.known_as
    return f"Also called {', '.join(names)}.\n\n" if names else ""


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
    for family, description in FAMILIES.items():
        lines += ["", f"## {family_title(family)}", "", f"A method of this family {description}.", ""]
        lines += ["| method | name | in one sentence |", "|---|---|---|"]
        for recipe in every:
            if recipe.family == family:
                lines.append(f"| [{full_title(recipe)}]({recipe.name}.md) | `{recipe.name}` | {summary(recipe)} |")
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
        f"# {full_title(recipe)}\n\n<p>{typeset(first, loss.options)}</p>\n\n{also_called(recipe)}{note}{formula}\n\n"
        f"| geometry | references | selection |\n|---|---|---|\n"
        f"| `{geometry}` | `{references.name}` | `{selection.name}` |\n\n"
        f"```python\nimport equimetric as em\n\nobjective = {construction(recipe)}\n```\n\n"
        f"{linked_papers(recipe.paper)}.\n\n{curve_section(recipe)}{option_section(recipe)}{number_section(recipe)}"
    )


def construction(recipe: Recipe) -> str:
    """How the method is built in a loop; a term is added to a loss; sizes that come from the data are examples."""
    name = recipe.name
    sizes = recipe.context_options(SIZES)
    if not recipe.stands_alone:
        base = "arcface" if recipe.parts()[2].name == "proxy_set" else "contrastive"
        name = f"{base}+0.1*{name}"
        sizes |= recipes()[base].context_options(SIZES)
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
    """Options of the method, then those of its references and its selection, folded."""
    owner = option_owners(recipe)
    loss, selection, references = recipe.parts()
    own = {name: loss for name in loss.options if name in owner}
    own |= {name: part for name, part in owner.items() if name in recipe.options or name in recipe.search}
    tables = [option_table(recipe, own)] if own else []
    for part in (selection, references):
        rest = {name: part for name in part.options if owner.get(name) is part and name not in own}
        if rest:
            table = indent(option_table(recipe, rest), "    ")
            tables.append(f'??? note "Options of the {part.kind} `{part.name}`"\n\n{table}')
    return "".join(f"{text}\n\n" for text in ("## Options", *tables)) if tables else ""


def option_owners(recipe: Recipe) -> dict[str, Component]:
    """Option → the part that takes it, the loss first where several do."""
    return {name: part for part in reversed(recipe.parts()) for name in part.options if name in recipe.defaults}


def option_table(recipe: Recipe, owners: Mapping[str, Component]) -> str:
    """Default, meaning, allowed values and range of tuning of each option; columns without any are left out."""
    columns = {
        "option": [f"`{name}`" for name in owners],
        "default": [f"`{format_value(recipe.defaults[name])}`" for name in owners],
        "meaning": [meaning(part, name) for name, part in owners.items()],
        "values": [allowed_values(part, name) for name, part in owners.items()],
        "searched by tuning": [describe_range(recipe.search.get(name)) for name in owners],
    }
    filled = {heading: cells for heading, cells in columns.items() if any(cells)}
    rows = [tuple(filled), ("---",) * len(filled), *zip(*filled.values(), strict=True)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


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
    published = published_results(recipe.name)
    if not ours and not published:
        return "## Numbers\n\nNeither in the published tables that we have nor in [our results](../results/index.md).\n"
    parts = ["## Numbers\n"]
    if ours:
        parts += [
            "**Measured here** (MAP@R and Recall@1 in percent). Rows differ in data, dimension and budget: compare a"
            " method with others of the same study, not one row with another.\n",
            our_table(ours),
        ]
    if published:
        opis = ", OPIS in thousandths" if any("OPIS" in result.metric for result in published) else ""
        parts += [f"**Published** (in percent{opis}):\n", published_tables(published)]
    return "\n".join(parts) + "\n"


def our_table(ours: Iterable[OurResult]) -> str:
    """Our rows, each with its conditions and the page it comes from."""
    lines = ["| study | trained on | dim | budget | MAP@R | Recall@1 |", "|---|---|---:|---|---:|---:|"]
    lines += [
        f"| [{one.table}](../results/{one.page}/index.md) | {one.trained_on} | {one.dim} | {one.budget} |"
        f" {one.map_at_r} | {one.recall_at_1} |"
        for one in ours
    ]
    return "\n".join(lines) + "\n"
