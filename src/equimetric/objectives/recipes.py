"""Recipes: every method of the literature as one row. Importable without torch."""

from equimetric.objectives.recipe import Recipe
from equimetric.search_space import Choice

__all__ = ["ROWS", "find_recipe", "recipes"]

ROWS = (
    Recipe(
        "triplet_semihard",
        "Triplet semi-hard",
        "triplet",
        selection="semihard",
        options={"margin": 0.2},
        known_as=("BatchSemiHardTripletLoss",),
    ),
    Recipe(
        "triplet_batch_hard",
        "Triplet batch-hard",
        "triplet",
        selection="batch_hard",
        options={"margin": 0.2},
        known_as=("BatchHardTripletLoss", "TripletHardLoss"),
    ),
    Recipe(
        "triplet_facenet",
        "Triplet (FaceNet)",
        "triplet",
        geometry="sqeuclidean",
        selection="facenet_semihard",
        options={"margin": 0.2},
        known_as=("FaceNet", "TripletSemiHardLoss"),
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
        known_as=("ProxyNCALoss",),
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
        "adaface",
        "AdaFace",
        "adaface",
        options={"normalize_proxies": True},
        note="class weights of unit length, embeddings of any",
    ),
    Recipe(
        "magface",
        "MagFace",
        "magface",
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
        "dynamic_soft_margin",
        "Dynamic soft margin",
        "dynamic_soft_margin",
        selection="batch_hard",
        note="of each anchor its farthest positive and closest negative, as the paper draws them",
    ),
    Recipe(
        "a_bier",
        "A-BIER",
        "bier",
        options={"diversity": "adversarial"},
        source="Opitz, Waltner, Possegger, Bischof: Deep metric learning with BIER (2018)",
        note="members that cannot be predicted from one another",
    ),
    Recipe(
        "gist",
        "GIST",
        "ntxent",
        selection="gist",
        options={"temperature": 0.01},
        note="negatives that are closer than the closest positive are taken for positives without the label",
    ),
    Recipe(
        "hyp",
        "Hyp",
        "ntxent",
        geometry="hyperbolic",
        options={"temperature": 0.2},
        source="Ermolov, Mirvakhabova, Khrulkov, Sebe, Oseledets: Hyperbolic vision transformers (2022)",
        note="compares by distances in hyperbolic space",
        known_as=("HypViT", "HyperbolicVisionTransformer"),
    ),
    Recipe(
        "xbm",
        "XBM",
        "contrastive_cosine",
        references="memory",
        options={"size": 8192, "start_iteration": 1000, "weight": 1.0},
        note="the batch against itself and against a memory of past batches",
        known_as=("CrossBatchMemory",),
    ),
)


def recipes() -> dict[str, Recipe]:
    """All methods by name: every registered loss with its default parts, and the named recipes."""
    from equimetric.components import LOSSES

    plain = [Recipe(loss.name, loss.title, loss.name) for loss in LOSSES.values()]
    return {recipe.name: recipe for recipe in (*plain, *ROWS)}


def find_recipe(name: str) -> Recipe:
    """Find a method by name, or a loss of a plug-in as 'module:name'.

    An unknown name raises an error with its name here, or the nearest one.
    """
    if ":" in name:
        from equimetric.objectives.own import own_recipe

        return own_recipe(name)
    methods = recipes()
    if name not in methods:
        from equimetric.objectives.unknown_method import unknown_method

        raise unknown_method(name, methods)
    return methods[name]
