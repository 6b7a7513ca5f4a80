"""Options with which methods fit an embedding of a few dimensions."""

__all__ = ["OPTIONS"]

OPTIONS = {
    "dreml": {"members": 2},
    "a_bier": {"hidden": 4},
    "manifold": {"proxies": 3},
    "intra_batch": {"heads": 1, "hidden": 6},
    "hist": {"hidden": 6},
    "hier": {"proxies": 7, "topk": 4, "per_anchor": 3},
}
