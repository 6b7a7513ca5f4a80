"""A batch of unequal classes and worked values, shared by the tests of losses over lists and over whole batches."""

import json
from pathlib import Path

import torch
from rounding import assert_same_digits

WORKED = json.loads((Path(__file__).parents[1] / "worked_values" / "list_losses.json").read_text())
LABELS = torch.tensor([5, 0, 9, 0, 5, 9, -3, 0, 9, 5, 0, 7])
"""Unsorted classes of 3, 4, 3 samples and two singletons."""


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def worked_set(name):
    return float64(WORKED["sets"][name]["embeddings"]), torch.tensor(WORKED["sets"][name]["labels"])


def batch(seed=0, dimension=4):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(LABELS), dimension, generator=generator, dtype=torch.float64, requires_grad=True)


def unit(vectors):
    return vectors / vectors.norm(dim=1, keepdim=True)


def ranked_lists(labels=LABELS):
    """For each sample, its positives and its negatives."""
    everyone = range(len(labels))
    return [
        ([j for j in everyone if j != i and labels[j] == labels[i]], [j for j in everyone if labels[j] != labels[i]])
        for i in everyone
    ]


def assert_equal_with_gradient(value, expected, embeddings):
    torch.testing.assert_close(value, expected)
    (gradient,) = torch.autograd.grad(value, embeddings, retain_graph=True)
    (expected_gradient,) = torch.autograd.grad(expected, embeddings)
    assert_same_digits(gradient, expected_gradient, digits=7)
