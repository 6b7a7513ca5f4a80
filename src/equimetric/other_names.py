"""Names that other libraries and papers use for names of this one. Needs no torch.

A loss, selection, kind of references or batch sampler lists its own other names, `known_as`, in its own file. This
table has those of options, and of values that are no components. A name of the table leads to the first of ours that
fits where it was given.
"""

from collections.abc import Iterable, Mapping

__all__ = ["KnownAs", "simplify", "spellings", "translate_name"]

KnownAs = Mapping[str, Iterable[str]]
"""A name of ours → its names elsewhere."""

KINDS = ("loss", "miner", "sampler", "distance", "similarity", "reducer", "regularizer", "regulariser")
"""Endings of class names elsewhere."""

AMBIGUOUS_NAMES: dict[str, tuple[str, ...]] = {
    # Parts of an objective.
    **dict.fromkeys(("miner", "mining_func", "mining", "sampling", "tuple_miner"), ("selection",)),
    **dict.fromkeys(("distance", "metric", "distance_metric", "similarity", "dist"), ("geometry",)),
    "normalize_embeddings": ("normalize",),
    # Options of losses.
    **dict.fromkeys(("s", "softmax_scale", "logit_scale", "scale_factor"), ("scale", "la", "temperature")),
    **dict.fromkeys(("m", "margin"), ("margin_rad", "margin_deg", "margin", "m", "neg_margin", "delta")),
    **dict.fromkeys(("temp", "tau", "t", "temperature", "sigma"), ("temperature", "sigma", "tau", "tau1", "scale")),
    **dict.fromkeys(("lambda", "lambd", "lmbda", "lambda_", "lmda"), ("lam", "lambda_base")),
    **dict.fromkeys(("alpha", "angle", "angle_bound"), ("alpha_deg",)),
    "eps": ("epsilon", "pos_eps"),
    **dict.fromkeys(("smooth_loss", "soft_margin"), ("soft",)),
    "n_bins": ("num_bins", "num_nodes"),
    "label_smooth": ("label_smoothing",),
    # Sizes.
    **dict.fromkeys(("num_classes", "n_classes", "nb_classes", "class_num", "out_features"), ("classes",)),
    **dict.fromkeys(("embedding_size", "embedding_dim", "embed_dim", "emb_size", "in_features"), ("dim",)),
    **dict.fromkeys(("feature_dim", "feat_dim", "dims", "dimension"), ("dim",)),
    **dict.fromkeys(("centers_per_class", "sub_centers", "num_centers", "centers"), ("per_class",)),
    **dict.fromkeys(("memory_size", "queue_size"), ("size",)),
    # Configurations.
    **dict.fromkeys(("learning_rate", "base_lr"), ("lr",)),
    **dict.fromkeys(("epochs", "num_epochs", "iterations", "max_steps", "num_iterations"), ("steps",)),
    **dict.fromkeys(("num_workers", "n_workers"), ("workers",)),
    **dict.fromkeys(("samples_per_class", "length_before_new_iter"), ("samples",)),
    **dict.fromkeys(("loss", "criterion", "loss_func", "objective"), ("method",)),
    # Reductions and geometries.
    "reducer": ("reduction",),
    **dict.fromkeys(("AvgNonZeroReducer", "ThresholdReducer"), ("nonzero",)),
    "DoNothingReducer": ("none",),
    "PerAnchorReducer": ("anchor",),
    **dict.fromkeys(("LpDistance", "L2", "PairwiseDistance"), ("euclidean",)),
    **dict.fromkeys(("SquaredEuclidean", "SquaredL2", "L2Squared"), ("sqeuclidean",)),
    **dict.fromkeys(("DotProductSimilarity", "InnerProduct", "IP"), ("dot",)),
    "cos": ("cosine",),
}
"""Name elsewhere → names here, the likeliest first."""


def simplify(name: str) -> str:
    """Letters and digits alone, in lower case: "NT-Xent" and "nt_xent" are one name, as "NCA++" and "nca_plus_plus"."""
    return "".join(letter for letter in name.casefold().replace("++", "plusplus") if letter.isalnum())


_TRANSLATIONS = {simplify(foreign_name): valid_name for foreign_name, valid_name in AMBIGUOUS_NAMES.items()}


def translate_name(name: str, valid: Iterable[str], known_as: KnownAs | None = None) -> list[str]:
    """Translate a name that is spelt or called differently elsewhere into valid ones; empty if there are none."""
    by_letters = {simplify(valid_name): valid_name for valid_name in valid}
    simplified, *shortened = spellings(name)
    if simplified in by_letters:
        return [by_letters[simplified]]
    valid_names = set(by_letters.values())
    for key in (simplified, *shortened):
        matches = [
            valid_name
            for valid_name, names in (known_as or {}).items()
            if valid_name in valid_names and key in map(simplify, names)
        ]
        matches = matches or [valid_name for valid_name in _TRANSLATIONS.get(key, ()) if valid_name in valid_names][:1]
        if matches:
            return matches
    return [by_letters[key] for key in shortened if key in by_letters][:1]


def spellings(name: str) -> list[str]:
    """The simplified name, and without the ending of a class name."""
    simplified = simplify(name)
    kinds = [kind for kind in KINDS if simplified.endswith(kind) and simplified != kind]
    return [simplified, *(simplified.removesuffix(kind) for kind in kinds)]
