"""Which method and options reproduce each row of the result tables in the literature."""

from typing import Any

__all__ = ["PUBLISHED"]

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
        "Triplet Semihard": ("triplet_facenet", {"margin": 1.0, "normalize": False}),
        "Lifted Struct": ("lifted", {"normalize": False}),
        "N-Pairs": ("npairs", {}),
        "Angular Loss": ("angular", {}),
        "Margin Loss": ("margin_class", {}),
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
        "SAP": ("smooth_ap", {}),
        "RS@k": ("recall_at_k_surrogate", {}),
        "TCM": ("tcm", {}),
        "previous SOTA with ImageNet pretraining (Patel et al., 2022)": ("recall_at_k_surrogate", {}),
        "previous SOTA with ImageNet pretraining (Kim et al., 2023)": ("proxy_anchor+0.5*hier", {}),
    },
}
"""Paper → name of the row in its result tables → (method, options).

Only the rows of untrained networks are left out. Some methods are more than their objective: HDC, A-BIER and DREML
define the members of an ensemble, whose embeddings the objective takes concatenated; smart mining and the hierarchical
triplet loss choose their batches, see `equimetric.batches`.
"""
