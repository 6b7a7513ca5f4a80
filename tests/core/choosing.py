"""Batches to choose from, and choices as lists, shared by the tests of selections."""

import json
from pathlib import Path

import torch

import equimetric as em

WORKED = json.loads((Path(__file__).parents[1] / "worked_values" / "selections.json").read_text())
# Unequal classes, unsorted, with singletons; ids that float32 cannot hold.
LABELS = torch.tensor([5, 2**40, 5, 3, -1, 2**40, 5, 3, 5, 8, 3, 5])
ROWS = range(len(LABELS))


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def random_embeddings(seed=0, dimension=4):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(LABELS), dimension, generator=generator, dtype=torch.float64)


def pairs_of(embeddings=None, labels=LABELS, geometry="cosine"):
    embeddings = random_embeddings() if embeddings is None else embeddings
    return em.objective("triplet", geometry=geometry).pairs(embeddings, labels)


def select(name, pairs, **options):
    return em.objective("triplet", selection=name, **options).double().selection(pairs)


def listed(triplets):
    return sorted(zip(triplets.anchor.tolist(), triplets.positive.tolist(), triplets.negative.tolist(), strict=True))


def positives(a):
    return [j for j in ROWS if j != a and LABELS[j] == LABELS[a]]


def negatives(a):
    return [j for j in ROWS if LABELS[j] != LABELS[a]]


def repeated(name, pairs, times=300, **options):
    torch.manual_seed(0)
    return [triple for _ in range(times) for triple in listed(select(name, pairs, **options))]
