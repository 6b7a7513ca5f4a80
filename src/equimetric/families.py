"""The families of methods. Needs no torch."""

__all__ = ["FAMILIES"]

FAMILIES = {
    "ranking": "compares pairs or triples of embeddings",
    "classification": "classifies by similarity to learned class weights",
    "proxy": "compares embeddings with learned class representatives",
    "ap-surrogate": "smooths a ranking metric and ascends it",
    "clustering": "scores a whole clustering of the batch",
    "contextual": "judges a sample by the other samples of its batch, through which labels or messages pass",
    "ensemble": "trains the members of an ensemble, whose embeddings are concatenated",
    "regulariser": "is added to another objective",
}
"""Family → what a method of it does."""
