"""Certificates for galleries, data that are hard to search, and the scan that scores every item."""

from dataclasses import replace
from functools import cache

import numpy as np
import torch

import equimetric as em
from equimetric.calibration import calibrate_identification
from equimetric.evaluation import Cohort

FORMS = ("cosine", "euclidean", "mean", "full")
KINDS = ("random", "clustered", "duplicates", "near the threshold")


def small_data(dimension, seed=0):
    draw = np.random.default_rng(seed)
    labels = np.repeat(np.arange(40), 6)
    return (draw.normal(size=(40, dimension))[labels] + 0.4 * draw.normal(size=(240, dimension))).astype("f4"), labels


@cache
def cohort(form, dimension):
    draw = np.random.default_rng(7)
    return Cohort(draw.normal(size=(60, dimension)).astype("f4"), nearest=10, form=form)


@cache
def verification(form="cosine", dimension=8):
    embeddings, labels = small_data(dimension)
    if form in ("mean", "full"):
        return em.Certificate.from_calibration(
            em.calibrate(embeddings, labels, far=0.1, cohort=cohort(form, dimension))
        )
    return em.Certificate.from_calibration(em.calibrate(embeddings, labels, far=0.1, geometry=form))


@cache
def identification(dimension=8, **options):
    return calibrate_identification(*small_data(dimension), fpir=0.2, repeats=2, **options)


def hard_data(kind, items, queries, dimension, seed=0):
    """Queries and items; some items lie as close to some query as others do, up to rounding."""
    draw = np.random.default_rng(seed)
    gallery = draw.normal(size=(items, dimension))
    asked = draw.normal(size=(queries, dimension))
    if kind == "clustered":
        centres = draw.normal(size=(9, dimension))
        gallery = centres[draw.integers(9, size=items)] + 0.05 * gallery
        asked = centres[draw.integers(9, size=queries)] + 0.05 * asked
    if kind == "duplicates":
        gallery = gallery[draw.integers(items // 40 + 1, size=items)]
        asked = gallery[draw.integers(items, size=queries)]
    if kind == "near the threshold":
        # Rotations of the query by one angle, up to a few units in the last place of float32.
        unit = asked / np.linalg.norm(asked, axis=1, keepdims=True)
        of_query = unit[draw.integers(queries, size=items)]
        across = gallery - (gallery * of_query).sum(1, keepdims=True) * of_query
        across /= np.linalg.norm(across, axis=1, keepdims=True)
        angle = 0.9 + 1e-7 * draw.integers(-3, 4, size=(items, 1))
        gallery, asked = np.cos(angle) * of_query + np.sin(angle) * across, unit
    return asked.astype("f4"), gallery.astype("f4")


def sides(form, queries, items):
    """Both sides as a gallery takes them."""
    if form not in ("mean", "full"):
        return queries, items
    used = cohort(form, queries.shape[1])
    return used.extend(queries)[0].numpy(), used.extend(items)[1].numpy()


def exact_scan(gallery, queries, ids):
    """(Q, N) scores of all pairs by the certificate's own formula, in float64."""
    stored = gallery.vectors(ids)
    if gallery.certificate.cohort is None:
        return np.stack([gallery.certificate.distances(query[None], stored).numpy() for query in queries])
    return np.stack([(torch.tensor(query).double() * torch.tensor(stored).double()).sum(1) for query in queries])


def expected_order(gallery, scores, ids):
    """The ids of one query, closest first, equal scores by id."""
    sign = 1 if gallery.certificate.cohort is None else -1
    return [ids[place] for place in sorted(range(len(ids)), key=lambda place: (sign * scores[place], ids[place]))]


def with_threshold(certificate, threshold):
    return replace(certificate, threshold=float(threshold))
