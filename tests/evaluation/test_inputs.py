import numpy as np
import pytest
import torch

from equimetric.errors import EquimetricError
from equimetric.evaluation import evaluate
from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.families import METRICS

EMBEDDINGS = torch.randn(6, 3, generator=torch.Generator().manual_seed(5))
LABELS = torch.tensor([0, 0, 1, 1, 2, 2])


def fails(message, *arguments, **options):
    with pytest.raises(EquimetricError, match=message) as caught:
        evaluate(*arguments, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_labels_of_any_integer_type(dtype):
    assert evaluate(EMBEDDINGS, LABELS.to(dtype)) == evaluate(EMBEDDINGS, LABELS)
    assert evaluate(EMBEDDINGS, LABELS.to(dtype).numpy()) == evaluate(EMBEDDINGS, LABELS)


@pytest.mark.parametrize(
    "labels",
    [
        2**24 + LABELS,
        2**53 + LABELS,
        -LABELS * 10**12,
        (2**63 - 3 + LABELS.numpy().astype(np.uint64)),
        LABELS.numpy().astype(">i4"),
        LABELS.tolist(),
        ["a", "a", "b", "b", "c", "c"],
        np.array(["a", "a", "b", "b", "c", "c"]),
        np.array(["a", "a", "b", "b", "c", "c"], dtype=object),
        np.array(["a", "a", "b", "b", "c", "c"], dtype=np.dtypes.StringDType()),
    ],
    ids=["2^24", "2^53", "negative", "uint64", "big-endian", "list", "strings", "str", "object", "StringDType"],
)
def test_labels_of_any_value(labels):
    assert evaluate(EMBEDDINGS, labels) == evaluate(EMBEDDINGS, LABELS)


def test_the_labels_come_back_as_given():
    assert torch.equal(evaluate(EMBEDDINGS, 2**40 + LABELS).labels, 2**40 + LABELS)
    assert evaluate(EMBEDDINGS, list("aabbcc")).labels == tuple("aabbcc")


@pytest.mark.parametrize("labels", [LABELS.float(), LABELS.bfloat16(), LABELS.numpy() / 1.0, [0.0, 0, 1, 1, 2, 2]])
def test_float_labels(labels):
    fails(r"labels are of type \S*float\d+; class labels must be integers or strings, so convert", EMBEDDINGS, labels)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (LABELS > 0, "labels are of type bool; class labels must be integers"),
        ([None] * 6, "labels are of type object; class labels must be integers"),
        (["a", "a", "b", "b", 1, 1], "labels mix strings with other types"),
        (np.full(6, 2**63, dtype=np.uint64), "labels exceed the largest 64-bit integer"),
        (LABELS[:, None], r"labels have shape \(6, 1\); they must be one-dimensional, .*: labels.squeeze\(1\)"),
        (LABELS[:, None].numpy(), r"labels have shape \(6, 1\); .*: labels.squeeze\(1\)"),
        (LABELS > 0, r"labels are of type bool; .* labels.long\(\)"),
        (LABELS.reshape(3, 2), r"labels have shape \(3, 2\); they must be one-dimensional, one per embedding$"),
        ("aabbcc", r"labels have shape \(\); they must be one-dimensional"),
        (LABELS[:5], "there are 6 embeddings but 5 labels; give exactly one label for each"),
        (torch.arange(6), "no query has a gallery item of its class"),
    ],
)
def test_labels_that_cannot_be_used(labels, message):
    fails(message, EMBEDDINGS, labels)


def test_one_class_is_evaluated_where_the_metric_is_defined():
    """It was an error whatever the metric; now a value, or an error that names the metrics without one."""
    one_class = [7] * 6
    names = [example for family in METRICS.values() for example in family.examples]
    reasons = {}
    for name in names:
        try:
            assert np.isfinite(evaluate(EMBEDDINGS, one_class, metrics=[name])[name])
        except EquimetricError as error:
            reasons[name.partition("@")[0]] = str(error)
    assert all("class" in reason for reason in reasons.values())
    undefined = set(reasons)
    assert undefined == {
        *("auc", "eer", "tar", "far", "frr", "threshold_gap", "fewshot", "fnir", "rank1", "open_auroc", "oscr"),
        *("opis", "opis_far", "opis_frr", "opis_noise", "opis_far_noise", "opis_frr_noise"),
        *("pi_inter", "pi_ratio", "pi_inter_euclidean", "pi_ratio_euclidean"),
    }
    assert set(evaluate(EMBEDDINGS, one_class).values()) == {1.0}
    two_classes = evaluate(EMBEDDINGS, LABELS, metrics=["spectral_decay", "uniformity"])
    assert evaluate(EMBEDDINGS, one_class, metrics=["spectral_decay", "uniformity"]) == pytest.approx(dict(two_classes))
    fails(
        r"all labels are the same class \(7\), and eer, opis are defined for two classes or more; leave them out",
        EMBEDDINGS,
        one_class,
        metrics=["recall@1", "eer", "opis"],
    )


def with_rows(value, *rows):
    spoilt = EMBEDDINGS.clone()
    for row in rows:
        spoilt[row, 1] = value
    return spoilt


@pytest.mark.parametrize(
    ("embeddings", "message"),
    [
        (with_rows(torch.nan, 3), "embeddings contain NaN or infinite values in 1 row of 6, the first is row 3"),
        (with_rows(-torch.inf, 4, 2), "embeddings contain NaN or infinite values in 2 rows of 6, the first is row 2"),
        (
            EMBEDDINGS * (LABELS != 1)[:, None],
            r"vectors of length zero .* in 2 rows of 6, the first is row 2; .*geometry",
        ),
        (EMBEDDINGS[0], r"embeddings have shape \(3,\); they must be two-dimensional"),
        (EMBEDDINGS[:0], r"embeddings are empty \(shape \(0, 3\)\)"),
        (EMBEDDINGS[:, :0], r"embeddings are empty \(shape \(6, 0\)\)"),
        (EMBEDDINGS.long(), "embeddings are of type torch.int64; give a torch tensor or numpy array of floating-point"),
        (EMBEDDINGS.numpy() * 1j, "embeddings are of type complex64; give"),
        (EMBEDDINGS.tolist(), "embeddings are of type list; give"),
    ],
)
def test_embeddings_that_cannot_be_used(embeddings, message):
    fails(message, embeddings, LABELS)


def test_galleries_that_cannot_be_used():
    fails("a gallery needs both gallery_embeddings and gallery_labels", EMBEDDINGS, LABELS, EMBEDDINGS)
    fails("a gallery needs both gallery_embeddings and gallery_labels", EMBEDDINGS, LABELS, gallery_labels=LABELS)
    fails("embeddings have 3 dimensions but gallery_embeddings have 2", EMBEDDINGS, LABELS, EMBEDDINGS[:, :2], LABELS)
    fails("must both be integers or both be strings", EMBEDDINGS, LABELS, EMBEDDINGS, list("aabbcc"))
    fails("there are 6 embeddings but 5 gallery_labels", EMBEDDINGS, LABELS, EMBEDDINGS, LABELS[:5])
    fails("gallery_embeddings contain NaN or infinite", EMBEDDINGS, LABELS, with_rows(torch.nan, 0), LABELS)
    fails("gallery_embeddings contain vectors of length zero", EMBEDDINGS, LABELS, 0 * EMBEDDINGS, LABELS)
    fails("no query has a gallery item of its class", EMBEDDINGS, LABELS, EMBEDDINGS, LABELS + 3)


def test_products_that_overflow():
    fails("inner products overflow float32; rescale", 1e25 * EMBEDDINGS, LABELS, geometry="dot")
    assert evaluate(1e25 * EMBEDDINGS, LABELS) == evaluate(1e-25 * EMBEDDINGS, LABELS) == evaluate(EMBEDDINGS, LABELS)


def test_options_that_cannot_be_used():
    fails("unknown metric 'map@R'; did you mean 'map@r'?", EMBEDDINGS, LABELS, metrics=["map@R"])
    fails("unknown metric 'recall@0'; did you mean 'recall@1'?", EMBEDDINGS, LABELS, ks=(0,))
    fails("metrics is empty", EMBEDDINGS, LABELS, metrics=[])
    fails("unknown treatment of lone queries 'zeros'; did you mean 'zero'?", EMBEDDINGS, LABELS, lone="zeros")
    fails("block_rows is 0; give at least 1", EMBEDDINGS, LABELS, block_rows=0)
    fails("neighbours is -1; give how many", EMBEDDINGS, LABELS, neighbours=-1)


def test_unit_vectors_are_neither_copied_nor_changed():
    unit = torch.nn.functional.normalize(torch.randn(40, 16), dim=1)
    before = unit.clone()
    sets = prepare_sets(unit, torch.arange(40) % 5)
    assert sets.queries.data_ptr() == unit.data_ptr()
    result = evaluate(unit, torch.arange(40) % 5, neighbours=10)
    assert torch.equal(unit, before)
    longer = evaluate(3 * unit, torch.arange(40) % 5, neighbours=10)
    assert torch.equal(result.neighbours, longer.neighbours)
    assert prepare_sets(1.001 * unit, torch.arange(40) % 5).queries.norm(dim=1).sub(1).abs().max() < 1e-6
