"""Compiled objectives beside eager ones: one graph where the law says so, value and gradient, at any size of batch."""

import shutil

import pytest
import torch
from rounding import assert_same_digits
from small_methods import OPTIONS

import equimetric as em
from equimetric.objectives import Context, build_objective
from equimetric.objectives.recipes import recipes

DIMENSION, SAMPLES, LARGE = 16, 8, 1024
# Needs the samples' places in the training set; "magnet" stands for it.
METHODS = sorted(n for n, recipe in recipes().items() if recipe.stands_alone and "images" not in recipe.context)
# Methods of each kind of references, compiled to machine code.
TO_MACHINE_CODE = ["contrastive", "arcface", "multi_similarity", "smooth_ap"]


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def is_exempt(method, law):
    return any(law in part.exempt for part in recipes()[method].parts())


def is_one_graph(method, rows):
    return not is_exempt(method, "static shapes") and not (rows == LARGE and is_exempt(method, "large static shapes"))


def build(method, rows):
    torch.manual_seed(1)
    context = Context(classes=rows // SAMPLES, dim=DIMENSION, images=rows)
    return build_objective(method, OPTIONS.get(method, {}), context).double().eval()


def batch(rows):
    """Classes that overlap, so that hinges are active on both sides."""
    labels = torch.arange(rows // SAMPLES).repeat_interleave(SAMPLES)
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(rows // SAMPLES, DIMENSION, generator=generator, dtype=torch.float64)
    return centres[labels] + torch.randn(rows, DIMENSION, generator=generator, dtype=torch.float64), labels


def value_and_gradient(function, embeddings, labels, **options):
    embeddings = embeddings.clone().requires_grad_()
    torch.manual_seed(3)
    value = function(embeddings, labels, **options)
    return value.detach(), *torch.autograd.grad(value, embeddings)


def assert_compiled_equals_eager(method, rows, backend, **options):
    # Built twice: some keep what they have seen.
    eager, compiled = build(method, rows), build(method, rows)
    compiled = torch.compile(compiled, backend=backend, fullgraph=is_one_graph(method, rows))
    expected = value_and_gradient(eager, *batch(rows), **options)
    found = value_and_gradient(compiled, *batch(rows), **options)
    assert_same_digits(found[0], expected[0])
    assert_same_digits(found[1], expected[1], digits=7)


@pytest.mark.parametrize("method", ["contrastive", "triplet", "multi_similarity", "binomial", "arcface"])
def test_losses_that_are_computed_a_few_rows_at_a_time_compile_as_one_graph(method, monkeypatch):
    monkeypatch.setattr("equimetric.ops.chunks.MIN_CHUNKED_PAIRS", 1)
    assert_compiled_equals_eager(method, 32, "eager")
    weight = torch.arange(32) % 3
    assert_compiled_equals_eager(method, 32, "eager", sample_weight=weight)


def test_transforms_of_torch_take_all_rows_at_once(monkeypatch):
    monkeypatch.setattr("equimetric.ops.chunks.MIN_CHUNKED_PAIRS", 1)
    objective, (embeddings, labels) = em.objective("contrastive").double(), batch(32)
    gradient = torch.func.grad(lambda x: objective(x, labels))(embeddings)
    assert_same_digits(gradient, value_and_gradient(objective, embeddings, labels)[1])


# Of torch itself, where a graph is broken by shapes that depend on data.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("method", ["smooth_ap", "angular", "lifted", "pnp", "recall_at_k_surrogate"])
def test_positives_of_large_batches_are_listed_between_two_graphs(method, monkeypatch):
    monkeypatch.setattr("equimetric.ops.positive_pairs.MAX_TRACED_TRIPLES", 1)
    expected = value_and_gradient(build(method, 32), *batch(32))
    compiled = torch.compile(build(method, 32), backend="eager")
    assert_same_digits(value_and_gradient(compiled, *batch(32)), expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch, where graphs end
@pytest.mark.parametrize("rows", [128, LARGE])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_compiles(method, rows):
    assert_compiled_equals_eager(method, rows, "aot_eager")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("rows", [128, LARGE])
@pytest.mark.parametrize("method", TO_MACHINE_CODE)
def test_methods_compile_to_machine_code(method, rows):
    assert_compiled_equals_eager(method, rows, "inductor")
