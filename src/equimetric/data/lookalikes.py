"""Merge characters that are drawn alike into one class: Latin A, Greek Α and Cyrillic А are the same picture.

The similarity of two characters is the median, over the faces that draw both, of the cosine between their pictures as
vectors of ink. The median follows most faces: one family with an unusual letter does not decide. Characters are merged
by complete linkage at a similarity of 0.99: every two characters of a class are that similar, so a chain of small steps
(the 64 hexagrams) merges nothing.
"""

import numpy as np
from numpy.typing import NDArray

from equimetric.data.rendering import FACES, Pictures

__all__ = ["MIN_SIMILARITY", "character_similarity", "find_unambiguous", "merge_lookalikes"]

MIN_SIMILARITY = 0.99
SCREENING_SLACK = 1e-3  # far above the error of single precision


def merge_lookalikes(pictures: Pictures) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct characters (K,), ascending, and the class of each (K,), numbered by first members."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial.distance import squareform

    characters, pairs, similarity = character_similarity(pictures)
    alike = similarity >= MIN_SIMILARITY
    pairs, similarity = pairs[alike], similarity[alike]
    n_characters = len(characters)
    edges = coo_array((similarity, (pairs[:, 0], pairs[:, 1])), shape=(n_characters, n_characters))
    # Complete linkage never merges across connected components, so each one is clustered separately.
    _, part = connected_components(edges, directed=False)
    first_member = np.arange(n_characters)
    for members in _groups(part):
        in_part = np.isin(pairs[:, 0], members)
        first, second = np.searchsorted(members, pairs[in_part]).T
        distance = np.ones((len(members), len(members)))
        distance[first, second] = distance[second, first] = 1 - similarity[in_part]
        np.fill_diagonal(distance, 0)
        merged = fcluster(linkage(squareform(distance), "complete"), 1 - MIN_SIMILARITY, "distance")
        for group in np.unique(merged):
            first_member[members[merged == group]] = members[merged == group].min()
    _, classes = np.unique(first_member, return_inverse=True)
    return characters, classes


def _groups(part: NDArray[np.int32]) -> list[NDArray[np.int64]]:
    """Ascending positions of every component with at least two members."""
    order = np.argsort(part, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(part[order])) + 1)
    return [group for group in groups if len(group) > 1]


def character_similarity(pictures: Pictures) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """The distinct characters (K,), pairs of positions among them (P, 2), and the similarity of each pair (P,).

    Pairs below `MIN_SIMILARITY` in every face they share cannot reach it in the median, and are left out.
    """
    characters, position = np.unique(pictures.characters, return_inverse=True)
    ink = pictures.images.reshape(len(pictures), -1)
    picture_of = np.full((len(characters), len(FACES)), -1)
    picture_of[position, pictures.faces] = np.arange(len(pictures))
    candidates = [_similar_pairs(ink, picture_of[:, face]) for face in range(len(FACES))]
    pairs = np.unique(np.concatenate(candidates), axis=0)
    similarity = np.array([_median_cosine(ink, *picture_of[pair]) for pair in pairs], dtype=np.float64)
    return characters, pairs, similarity


def _similar_pairs(ink: NDArray[np.uint8], picture_of: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pairs (P, 2) of characters whose cosine in this face is about `MIN_SIMILARITY` or more: a fast pre-selection."""
    covered = np.flatnonzero(picture_of >= 0)
    vectors = ink[picture_of[covered]].astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    alike = np.triu(vectors @ vectors.T >= MIN_SIMILARITY - SCREENING_SLACK, k=1)
    return covered[np.argwhere(alike)]


def _median_cosine(ink: NDArray[np.uint8], first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """median_f ⟨x_f, y_f⟩ / √(⟨x_f, x_f⟩⟨y_f, y_f⟩) over shared faces f; in integers, so equal on every machine."""
    shared = (first >= 0) & (second >= 0)
    x, y = ink[first[shared]].astype(np.int64), ink[second[shared]].astype(np.int64)
    product, x_square, y_square = ((a * b).sum(axis=1) for a, b in ((x, y), (x, x), (y, y)))
    return float(np.median(product / np.sqrt(x_square * y_square)))


def find_unambiguous(images: NDArray[np.uint8], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions of the pictures to keep: the first of equal ones in a class, none of equal ones in several classes."""
    flat = np.ascontiguousarray(images.reshape(len(images), -1))
    _, picture = np.unique(flat.view(np.dtype((np.void, flat.shape[1]))).ravel(), return_inverse=True)
    picture_class, first = np.unique(np.stack([picture, labels], axis=1), axis=0, return_index=True)
    n_classes = np.bincount(picture_class[:, 0])
    return np.sort(first[n_classes[picture_class[:, 0]] == 1])
