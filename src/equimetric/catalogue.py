"""The catalogue: every method of the literature as one row that fixes the parts of an objective and their defaults."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import Any

from torch import nn

from equimetric.components import LOSSES, REFERENCES, SELECTIONS, Component
from equimetric.errors import EquimetricError, did_you_mean, unknown_name
from equimetric.objectives import Objective, ObjectiveSum, compose
from equimetric.search_space import Choice, SearchSpace

__all__ = ["PUBLISHED", "Context", "Recipe", "build_objective", "find_recipe", "objective", "parse_method", "recipes"]

PARTS = ("geometry", "references", "selection")
SWITCHES = ("normalize", "gather", "require_both")


@dataclass(frozen=True)
class Recipe:
    """A named method: a loss with the parts and options that the paper gives it.

    Attributes:
        name: what `objective(name)` takes.
        title: how tables call it.
        loss: the registered loss; the other parts default to those that the loss names first.
        geometry, references, selection: parts that differ from the loss's own defaults.
        options: option values that differ from the parts' defaults.
        context: options that only the data can tell (number of classes, dimension, number of images).
        ranges: search ranges that differ from those of the parts.
        note: one line that says what sets it apart.
        source: the paper of the recipe, where it is not that of its parts.

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

    def parts(self) -> tuple[Component, Component, Component]:
        """The records of loss, selection and references."""
        loss = LOSSES[self.loss]
        return loss, SELECTIONS[self.selection or "all"], REFERENCES[self.references or loss.reference_kinds[0]]

    @property
    def family(self) -> str:
        """The loss's family."""
        return LOSSES[self.loss].family

    @property
    def paper(self) -> str:
        """The paper of the recipe, or else of the loss and, where it has one, of the selection."""
        if self.source:
            return self.source
        loss, selection, _ = self.parts()
        papers = dict.fromkeys(part.paper for part in (loss, selection) if part.paper)
        return "; ".join(papers)

    @property
    def defaults(self) -> dict[str, Any]:
        """Every option with its default; options that only the data can tell are left out."""
        merged: dict[str, Any] = {}
        for component in reversed(self.parts()):
            merged.update(component.options)
        merged.update(self.options)
        return {name: value for name, value in merged.items() if value is not inspect.Parameter.empty}

    @property
    def search(self) -> dict[str, SearchSpace]:
        """The range of each tunable option.

        Of the references, only of options that the method itself sets: ArcFace with several centres per class is
        another method.
        """
        loss, selection, references = self.parts()
        own = {option: space for option, space in references.search.items() if option in self.options}
        # An option that both share is held to what the selection makes sense of.
        return {**own, **loss.search, **selection.search, **self.ranges}

    def known_options(self) -> set[str]:
        """Every option name that `build` may take, those of exchangeable parts included."""
        loss = LOSSES[self.loss]
        parts = (loss, *SELECTIONS.values(), *REFERENCES.values())
        return {*PARTS, *SWITCHES, *loss.aliases, *(option for part in parts for option in part.options)}

    def takes(self, option: str) -> bool:
        """Whether `option` belongs to this method as it stands, or changes one of its parts."""
        loss = LOSSES[self.loss]
        own = {option for part in self.parts() for option in part.options}
        return option in {*PARTS, *SWITCHES, *loss.aliases, *loss.implies, *own}

    def from_context(self, context: "Context") -> dict[str, Any]:
        """The options that the data tell, e.g. {'classes': 100, 'dim': 64} for a method with proxies."""
        required = {
            name: name
            for part in self.parts()
            for name, default in part.options.items()
            if default is inspect.Parameter.empty
        }
        return {option: getattr(context, source) for option, source in {**required, **self.context}.items()}

    def build(self, **options: Any) -> Objective:
        """The objective, with some options changed."""
        chosen = {"geometry": self.geometry, "references": self.references, "selection": self.selection}
        missing = [option for option in self.context if option not in options]
        if missing:
            raise EquimetricError(f"method {self.name!r} needs {', '.join(f'{option}=…' for option in missing)}")
        return compose(self.loss, name=self.name, **{**chosen, **self.own_options(options), **options})

    def own_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options that the recipe sets; a selection or references that are replaced take theirs along."""
        loss, selection, references = self.parts()
        given = {loss.aliases.get(option, option): value for option, value in options.items()}
        kept = [loss]
        kept += [
            part
            for role, part in (("selection", selection), ("references", references))
            if given.get(role, part.name) == part.name
        ]
        return {option: value for option, value in self.options.items() if any(option in part.options for part in kept)}


ROWS = (
    Recipe("triplet_semihard", "Triplet semi-hard", "triplet", selection="semihard", options={"margin": 0.2}),
    Recipe("triplet_batch_hard", "Triplet batch-hard", "triplet", selection="batch_hard", options={"margin": 0.2}),
    Recipe(
        "triplet_facenet",
        "Triplet (FaceNet)",
        "triplet",
        geometry="sqeuclidean",
        selection="facenet_semihard",
        options={"margin": 0.2},
    ),
    Recipe(
        "margin",
        "Margin",
        "margin_loss",
        selection="distance_weighted",
        note="the pair of loss and sampling that the paper proposes",
    ),
    Recipe(
        "margin_class",
        "Margin / class",
        "margin_loss",
        selection="distance_weighted",
        context={"beta_class": "classes"},
        note="a boundary of its own for every class",
    ),
    Recipe("multi_similarity_miner", "MS + Miner", "multi_similarity", selection="multi_similarity"),
    Recipe(
        "proxy_nca_plus_plus",
        "ProxyNCA++",
        "proxy_nca",
        options={"positive_in_denominator": True},
        source="Teh, DeVries, Taylor: ProxyNCA++: revisiting proxy neighborhood component analysis (2020)",
        note="the positive proxy is in the denominator",
    ),
    Recipe(
        "normalized_softmax",
        "N. Softmax",
        "normalized_softmax",
        options={"initial": "uniform"},
    ),
    Recipe("proxy_anchor", "Proxy-Anchor", "proxy_anchor", options={"initial": "kaiming_normal"}),
    Recipe(
        "nca",
        "NCA",
        "normalized_softmax",
        references="batch",
        source="Goldberger, Roweis, Hinton, Salakhutdinov: Neighbourhood components analysis (2004)",
        note="softmax over the batch instead of proxies",
    ),
    Recipe("proxy_triplet", "Proxy-Triplet", "proxy_triplet", options={"initial": "xavier"}),
    Recipe(
        "subcenter_arcface",
        "Sub-centre ArcFace",
        "arcface",
        options={"per_class": 3, "pool": "max"},
        ranges={"per_class": Choice((2, 3, 5))},
        source="Deng, Guo, Liu, Gong, Zafeiriou: Sub-center ArcFace (2020)",
        note="three centres per class, of which the nearest counts, so that odd samples may have one of their own",
    ),
    Recipe(
        "softtriple",
        "SoftTriple",
        "softtriple",
        options={"per_class": 10, "pool": "soft", "gamma": 0.1, "tau": 0.2, "initial": "kaiming_uniform"},
        ranges={"per_class": Choice((2, 5, 10))},
        note="ten centres per class, drawn together by a regulariser",
    ),
    Recipe(
        "sphereface",
        "SphereFace",
        "sphereface",
        options={"normalize_proxies": True},
        note="class weights of unit length, embeddings of any",
    ),
    Recipe(
        "magnet_clusters",
        "Magnet, clustered",
        "magnet",
        context={"images": "images"},
        note="several clusters in each class, found anew every epoch",
    ),
    Recipe("raw_vthm", "RAW + VTHM", "raw", selection="vthm", note="valid-triplet hard mining before RAW weights"),
    Recipe("raw_distance_weighted", "RAW + DW", "raw", selection="distance_weighted"),
    Recipe("raw_semihard", "RAW + SemiHard", "raw", selection="facenet_semihard"),
    Recipe("binomial_vthm", "Binomial + VTHM", "binomial", selection="vthm"),
    Recipe("vthm", "VTHM", "equal_weights", selection="vthm", note="mined pairs, all with the same weight"),
    Recipe(
        "r_margin",
        "R-Margin",
        "margin_loss",
        selection="spectral_switch",
        note="now and then a positive is pushed away, so that classes do not collapse",
    ),
    Recipe("pads", "PADS", "margin_loss", selection="pads", options={"beta": 0.6}),
    Recipe(
        "a_bier",
        "A-BIER",
        "bier",
        options={"diversity": "adversarial"},
        source="Opitz, Waltner, Possegger, Bischof: Deep metric learning with BIER (2018)",
        note="members that cannot be predicted from one another",
    ),
    Recipe(
        "xbm",
        "XBM",
        "contrastive_cosine",
        references="memory",
        options={"size": 8192, "start_iteration": 1000, "weight": 1.0},
        note="the batch against itself and against a memory of past batches",
    ),
)


def recipes() -> dict[str, Recipe]:
    """All methods by name: the rows above, and every registered loss with the parts it names first."""
    plain = [Recipe(loss.name, loss.title, loss.name) for loss in LOSSES.values()]
    return {recipe.name: recipe for recipe in (*plain, *ROWS)}


def find_recipe(name: str) -> Recipe:
    """A method by name; a misspelt name is an error that gives the nearest."""
    known = recipes()
    if name not in known:
        raise unknown_name("method", name, known)
    return known[name]


def parse_method(method: str) -> list[tuple[float, Recipe]]:
    """The weighted terms of a method's name: 'multi_similarity', 'contrastive+tcm', 'contrastive + 0.5*tcm'."""
    terms = []
    for term in method.split("+"):
        factor, _, name = term.rpartition("*")
        try:
            weight = float(factor) if factor.strip() else 1.0
        except ValueError:
            weight = nan
        if not isfinite(weight):
            raise EquimetricError(f"{factor.strip()!r} in {method!r} is not a number; write e.g. '0.5*tcm'")
        terms.append((weight, find_recipe(name.strip())))
    return terms


def route(method: str, terms: list[tuple[float, Recipe]], options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The options of each term: 'term.option' goes to that term, a bare option to the only term that takes it."""
    routed: list[dict[str, Any]] = [{} for _ in terms]
    names = [recipe.name for _, recipe in terms]
    for option, value in options.items():
        term, dot, bare = option.rpartition(".")
        if dot and term not in names:
            raise unknown_name(f"term of {method!r}", term, names)
        asked = [i for i, name in enumerate(names) if not dot or name == term]
        takers = [i for i in asked if terms[i][1].takes(bare)]
        # An option of a part that another option exchanges, such as `classes` beside references="proxies".
        takers = takers or [i for i in asked if bare in terms[i][1].known_options()]
        # A selection of the user's own has options that nobody knows beforehand.
        takers = takers or [i for i in asked if callable(options.get("selection"))]
        if not takers:
            known = [name for _, recipe in terms for name in recipe.known_options()]
            raise EquimetricError(f"method {method!r} has no option {bare!r}; {did_you_mean(bare, known)}")
        if len(takers) > 1 and len({names[i] for i in takers}) == 1:
            raise EquimetricError(
                f"{method!r} names {names[takers[0]]!r} more than once, so option {bare!r} could be that of any; "
                "make each objective by itself and add them up"
            )
        if len(takers) > 1:
            choices = " or ".join(f"{names[i]}.{bare}" for i in takers)
            raise EquimetricError(f"option {bare!r} belongs to several terms of {method!r}; say {choices}")
        routed[takers[0]][bare] = value
    return routed


@dataclass(frozen=True)
class Context:
    """What only the data and the model can tell an objective."""

    classes: int
    dim: int
    images: int


def build_objective(
    method: str, options: Mapping[str, Any], context: Context | None = None
) -> Objective | ObjectiveSum:
    """The objective of a method's name, with options changed and the rest filled in from the context."""
    terms = parse_method(method)
    parts = []
    for (weight, recipe), own in zip(terms, route(method, terms, options), strict=True):
        filled = {} if context is None else recipe.from_context(context)
        parts.append((weight, recipe.build(**{**filled, **own})))
    if len(parts) == 1 and parts[0][0] == 1.0:
        return parts[0][1]
    return ObjectiveSum(parts)


def objective(method: str | Callable[..., Any] | nn.Module, **options: Any) -> Objective | ObjectiveSum:
    """The objective of a method: `objective("multi_similarity", alpha=2.0)(embeddings, labels)` is a scalar.

    `method` is a name of the catalogue, a sum of names such as "contrastive+tcm" or "contrastive + 0.5*tcm", or a
    loss of your own: a function of `Pairs` or a module. Options are flat; each goes to the part that owns it. The
    parts themselves can be exchanged: `geometry=`, `references=`, `selection=`.
    """
    if isinstance(method, str):
        return build_objective(method, options)
    return compose(method, **options)


REALITY_CHECK = "Musgrave, Belongie, Lim: A metric learning reality check (2020)"
UNBIASED = "Fehérvári, Ravichandran, Appalaraju: Unbiased evaluation of deep metric learning algorithms (2019)"
UNIFIED_VIEW = "A unified view of deep metric learning via gradient analysis (2019)"
TCM = "Zhang et al.: Threshold-consistent margin loss for open-world deep metric learning (2024)"

PUBLISHED: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    REALITY_CHECK: {
        "Contrastive": ("contrastive", {}),
        "Triplet": ("triplet", {}),
        "NT-Xent": ("ntxent", {}),
        "ProxyNCA": ("proxy_nca_plus_plus", {}),
        "Margin": ("margin_loss", {"selection": "all_triplets"}),
        "Margin/class": ("margin_class", {"selection": "all_triplets"}),
        "N. Softmax": ("normalized_softmax", {}),
        "CosFace": ("cosface", {}),
        "ArcFace": ("arcface", {"mode": "plain"}),
        "FastAP": ("fastap", {}),
        "SNR": ("snr_contrastive", {}),
        "MS": ("multi_similarity", {}),
        "MS+Miner": ("multi_similarity_miner", {}),
        "SoftTriple": ("softtriple", {"divisor": "unordered"}),
    },
    UNBIASED: {
        "Triplet Semihard": ("triplet_facenet", {}),
        "Lifted Struct": ("lifted", {"normalize": False}),
        "N-Pairs": ("npairs", {}),
        "Angular Loss": ("angular_npairs_combo", {}),
        "Margin Loss": ("margin", {}),
        "Ranked List Loss": ("ranked_list", {"form": "additive", "lam": 1.0}),
        "Struct Clust": ("structured_clustering", {}),
        "Prototype Loss": ("prototypical", {}),
        "Proxy-NCA": ("proxy_nca", {}),
        "Proxy-Triplet": ("proxy_triplet", {"reduction": "batch"}),
        "Proxy-Softmax": ("normalized_softmax", {}),
        "DREML": ("dreml", {"proxies": "learned"}),
    },
    UNIFIED_VIEW: {
        "Binomial": ("binomial", {}),
        "Binomial+VTHM": ("binomial_vthm", {}),
        "RAW": ("raw", {}),
        "RAW+DW": ("raw_distance_weighted", {}),
        "RAW + SemiHard": ("raw_semihard", {}),
        "RAW+VTHM": ("raw_vthm", {}),
        "RAW+VTHM (ours)": ("raw_vthm", {}),
        "VTHM": ("vthm", {}),
        "Margin": ("margin", {}),
        "ProxyNCA": ("proxy_nca", {}),
        "Proxy-NCA": ("proxy_nca", {}),
        "Clustering": ("structured_clustering", {}),
        "HTL": ("hierarchical_triplet", {}),
        "Smart Mining": ("triplet+global_loss", {"triplet.geometry": "sqeuclidean"}),
        "HDC": ("hdc", {}),
        "ABIER": ("a_bier", {}),
    },
    TCM: {
        "SAP + TCM": ("smooth_ap+tcm", {}),
        "RS@k + TCM": ("recall_at_k_surrogate+tcm", {}),
        "TCM": ("tcm", {}),
        "previous SOTA with ImageNet pretraining (Patel et al., 2022)": ("recall_at_k_surrogate", {}),
        "previous SOTA with ImageNet pretraining (Kim et al., 2023)": ("proxy_anchor+0.5*hier", {}),
    },
}
"""The rows of result tables in the literature as (method, options), by document and by their names there.

Only a pretrained network, which is not trained, has none. Some methods are more than their objective: HDC, A-BIER and
DREML say how the members of an ensemble are formed, of which the objective takes the embeddings one after the other;
smart mining and the hierarchical triplet loss choose their batches, see `equimetric.batches`.
"""
