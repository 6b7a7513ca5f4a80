import itertools
import math

import pytest
import torch
from torch.nn.functional import normalize

from equimetric.errors import EquimetricError
from equimetric.evaluation import evaluate
from equimetric.evaluation.engine import class_distances
from equimetric.evaluation.metrics import spectrum
from equimetric.evaluation.metrics.density import distance_between_classes, distance_within_classes
from equimetric.evaluation.metrics.spectrum import singular_values, spectral_decay
from equimetric.ops import blocks

ANGLES = torch.deg2rad(torch.tensor([0.0, 35.0, 50.0, 75.0, 170.0, 225.0], dtype=torch.float64))
CIRCLE = torch.stack([ANGLES.cos(), ANGLES.sin()], dim=1)
SPHERE = torch.tensor(
    [[1, 0, 0], [0.8, 0.6, 0], [0.6, 0, 0.8], [-0.28, 0.96, 0], [0.352, 0.936, 0], [-0.48, 0.6, 0.64]],
    dtype=torch.float64,
)
WORKED = {
    "circle": (
        CIRCLE,
        [0, 0, 1, 1, 2, 2],
        {
            "pi_intra": 0.233654577441,
            "pi_inter": 1.33333333333,
            "pi_ratio": 0.175240933081,
            "pi_ratio_euclidean": 0.424395102836,
            "spectral_decay": 0.0478972391806,
            "spectral_decay_reverse": 0.0463967466259,
            "spectral_decay@drop=1": 0.0,
            "alignment": 0.467309154882,
            "uniformity": -1.63325263934,
        },
    ),
    "sphere": (
        SPHERE,
        [0, 0, 0, 1, 1, 1],
        {
            "pi_intra": 0.369493333333,
            "pi_inter": 0.848090834754,
            "pi_ratio": 0.435676602307,
            "pi_ratio_euclidean": 0.645274453524,
            "spectral_decay": 0.026129875232,
            "spectral_decay_reverse": 0.024595864801,
            "spectral_decay@drop=1": 0.0226907053451,
            "alignment": 0.738986666667,
            "uniformity": -1.81870423336,
        },
    ),
}


def random_space(seed=0, count=40, dimension=5, classes=6, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(count, dimension, generator=generator, dtype=dtype)
    labels = torch.randint(0, classes - 1, (count,), generator=generator)
    labels[0] = classes - 1  # a class of one
    return embeddings, labels


@pytest.mark.parametrize("name", WORKED)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 1e-6)])
def test_worked_values(name, dtype, tolerance):
    embeddings, labels, expected = WORKED[name]
    result = evaluate(embeddings.to(dtype), labels, metrics=list(expected))
    assert dict(result) == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("geometry", ["cosine", "euclidean"])
def test_density_by_definition(geometry):
    embeddings, labels = random_space()
    unit = normalize(embeddings, dim=1)
    for suffix, distance in (("", lambda a, b: 1 - a @ b), ("_euclidean", lambda a, b: (a - b).norm())):
        groups = [unit[labels == label] for label in labels.unique()]
        pairs = [list(itertools.combinations(group, 2)) for group in groups if len(group) > 1]
        intra = [sum(float(distance(a, b)) for a, b in of_class) / len(of_class) for of_class in pairs]
        means = [normalize(group.mean(dim=0), dim=0) for group in groups]
        inter = [float(distance(a, b)) for a, b in itertools.permutations(means, 2)]
        names = [f"pi_{kind}{suffix}" for kind in ("intra", "inter", "ratio")]
        result = evaluate(embeddings, labels, metrics=names, geometry=geometry)
        expected = [sum(intra) / len(intra), sum(inter) / len(inter)]
        assert list(result.values()) == pytest.approx([*expected, expected[0] / expected[1]], rel=1e-10)
        per_class = result.score_per_class[f"pi_intra{suffix}"]
        assert per_class[:5].tolist() == pytest.approx(intra, rel=1e-10)
        assert math.isnan(per_class[5])


def test_density_of_a_large_class_in_blocks(monkeypatch):
    embeddings, labels = random_space(count=60)
    whole = (
        distance_within_classes(embeddings, labels, 6, "euclidean"),
        distance_between_classes(embeddings, labels, 6, "euclidean"),
    )
    for module in (class_distances, blocks):
        monkeypatch.setattr(module, "TILE_BYTES", 200)
    torch.testing.assert_close(
        distance_within_classes(embeddings, labels, 6, "euclidean"), whole[0], rtol=1e-13, atol=0, equal_nan=True
    )
    assert distance_between_classes(embeddings, labels, 6, "euclidean") == pytest.approx(whole[1], rel=1e-13)


def test_identical_members_have_distance_zero():
    vectors = normalize(torch.randn(1, 64, generator=torch.Generator().manual_seed(0)), dim=1).repeat(60, 1)
    classes = torch.arange(2).repeat(30)
    for distance in ("cosine", "euclidean"):
        assert distance_within_classes(vectors, classes, 2, distance).abs().max() < 1e-7


def test_singular_values_from_blocks(monkeypatch):
    embeddings, _ = random_space(count=50, dimension=7)
    monkeypatch.setattr(spectrum, "SPECTRUM_ROWS", 3)
    torch.testing.assert_close(singular_values(embeddings), torch.linalg.svdvals(embeddings), rtol=1e-12, atol=0)


def test_an_unused_dimension_shows_in_the_spectrum():
    embeddings, labels = random_space(count=200, dimension=8)
    embeddings[:, 3] = 0
    shares = singular_values(embeddings)
    assert shares[-1] < 1e-14 * shares[0]
    # Its share counts as 10^-12, and the others are nearly equal.
    assert evaluate(embeddings, labels, metrics=["spectral_decay"])["spectral_decay"] == pytest.approx(
        math.log(1e12 / 8) / 8, rel=0.05
    )


def test_spectral_decay_by_definition():
    values = torch.tensor([4.0, 3.0, 2.0, 1.0], dtype=torch.float64)
    shares = [3 / 6, 2 / 6, 1 / 6]
    forward = sum(math.log((1 / 3) / share) / 3 for share in shares)
    backward = sum(share * math.log(3 * share) for share in shares)
    assert spectral_decay(values.flip(0), drop=1) == pytest.approx(forward)
    assert spectral_decay(values, drop=1, reverse=True) == pytest.approx(backward)
    assert spectral_decay(torch.ones(5)) == spectral_decay(values, drop=3) == pytest.approx(0, abs=1e-7)


def pair_values(embeddings, labels, gallery, gallery_labels, left_out, geometry):
    """Distances of (positive pairs, all pairs) that are compared, by two loops."""
    if geometry == "cosine":
        embeddings, gallery = normalize(embeddings, dim=1), normalize(gallery, dim=1)
    every = {
        (i, j): float((a - b).norm())
        for i, a in enumerate(embeddings)
        for j, b in enumerate(gallery)
        if not left_out(i, j)
    }
    return [d for (i, j), d in every.items() if labels[i] == gallery_labels[j]], list(every.values())


@pytest.mark.parametrize("geometry", ["cosine", "euclidean"])
@pytest.mark.parametrize("against", ["itself", "itself, some the same image", "a gallery", "a gallery, some the same"])
def test_alignment_and_uniformity_by_definition(geometry, against):
    embeddings, labels = random_space(1)
    ids = torch.arange(len(labels))
    ids[10:20] = ids[:10]
    names = ["alignment", "alignment@alpha=1.5", "uniformity", "uniformity@t=0.5"]
    options = {"metrics": names, "geometry": geometry, "block_rows": 7}
    if against.startswith("itself"):
        same = "same" in against
        result = evaluate(embeddings, labels, query_ids=ids if same else None, **options)
        of_pairs = embeddings, labels, lambda i, j: i == j or (same and ids[i] == ids[j])
    else:
        gallery, gallery_labels = random_space(2, count=30)
        same = "same" in against
        shown = {"query_ids": ids, "gallery_ids": ids[:30]} if same else {}
        result = evaluate(embeddings, labels, gallery, gallery_labels, **shown, **options)
        of_pairs = gallery, gallery_labels, lambda i, j: same and ids[i] == ids[j]
    positive, every = pair_values(embeddings, labels, *of_pairs, geometry)
    assert result["alignment"] == pytest.approx(sum(d**2 for d in positive) / len(positive), rel=1e-10)
    assert result["alignment@alpha=1.5"] == pytest.approx(sum(d**1.5 for d in positive) / len(positive), rel=1e-7)
    for name, t in (("uniformity", 2), ("uniformity@t=0.5", 0.5)):
        expected = math.log(sum(math.exp(-t * d**2) for d in every) / len(every))
        assert result[name] == pytest.approx(expected, rel=1e-9)


def test_alignment_of_classes():
    embeddings, labels = random_space(4)
    unit = normalize(embeddings, dim=1)
    for name, alpha in (("alignment", 2), ("alignment@alpha=3", 3)):
        per_class = evaluate(embeddings, labels, metrics=[name]).score_per_class[name]
        for label in range(5):
            distances = torch.pdist(unit[labels == label])
            assert per_class[label].item() == pytest.approx(distances.pow(alpha).mean().item(), rel=1e-9)
        assert math.isnan(per_class[5])


def test_a_vector_has_distance_zero_from_itself():
    """Exactly zero: a small power would turn 1e-8 into a large value."""
    embeddings, labels = random_space(5, count=80, dimension=30, classes=3)
    unit = normalize(embeddings, dim=1)
    powers = torch.cat([torch.pdist(unit[labels == label]) for label in range(2)]).pow(0.05)
    result = evaluate(embeddings, labels, metrics=["alignment@alpha=0.05"])
    assert result["alignment@alpha=0.05"] == pytest.approx(powers.mean().item(), rel=1e-9)


def test_structure_depends_on_neither_order_nor_rotation():
    embeddings, labels = random_space(3)
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(labels), generator=generator)
    rotation, _ = torch.linalg.qr(torch.randn(5, 5, generator=generator, dtype=torch.float64))
    names = [*WORKED["circle"][2], "alignment@alpha=1", "pi_intra_euclidean"]
    plain = evaluate(embeddings, labels, metrics=names)
    assert dict(evaluate((3 * embeddings @ rotation)[order], labels[order] + 5, metrics=names)) == pytest.approx(
        dict(plain), rel=1e-9
    )


SCALES = [1e-30, 1e-18, 1e18, 1e30]


@pytest.mark.parametrize("scale", SCALES)
def test_density_of_very_short_and_very_long_vectors(scale):
    embeddings, labels = random_space(3)
    names = ["pi_intra", "pi_inter", "pi_ratio", "pi_intra_euclidean", "pi_inter_euclidean"]
    options = {"metrics": names, "geometry": "euclidean"}
    plain = evaluate(embeddings.float(), labels, **options)
    assert dict(evaluate(embeddings.float() * scale, labels, **options)) == pytest.approx(dict(plain), rel=1e-5)


@pytest.mark.parametrize("scale", [*SCALES, 3.0, 100.0])
@pytest.mark.parametrize("gallery", [False, True])
def test_uniformity_of_very_short_and_very_long_vectors(scale, gallery):
    embeddings, labels = random_space(1)
    embeddings = (embeddings * scale).float()
    against = (embeddings + scale, labels) if gallery else ()
    metrics = ["uniformity", "uniformity@t=0.5"]
    result = evaluate(embeddings, labels, *against, metrics=metrics, geometry="euclidean", block_rows=7)
    squared = torch.cdist(embeddings.double(), against[0].double()) if gallery else torch.pdist(embeddings.double())
    squared = squared.flatten().square()
    for name, t in (("uniformity", 2), ("uniformity@t=0.5", 0.5)):
        expected = float((-t * squared).logsumexp(0)) - math.log(len(squared))
        assert result[name] == pytest.approx(expected, rel=1e-5, abs=1e-12)


def test_uniformity_with_a_sharp_potential():
    """Of unit vectors far apart, e^{−1000 d²} is too small for any floating-point number."""
    embeddings, labels = torch.eye(6, dtype=torch.float64), [0, 0, 1, 1, 2, 2]
    assert evaluate(embeddings, labels, metrics=["uniformity@t=1000"])["uniformity@t=1000"] == pytest.approx(-2000)


def test_invalid_structure_metrics():
    embeddings, labels = random_space()
    with pytest.raises(EquimetricError, match="6 dimensions needs at least as many vectors, and there are 4"):
        evaluate(torch.randn(4, 6), [0, 0, 1, 1], metrics=["spectral_decay"])
    with pytest.raises(EquimetricError, match="5 of 5 singular values cannot be dropped"):
        evaluate(embeddings, labels, metrics=["spectral_decay@drop=5"])
    for name in ("alignment", "uniformity"):
        with pytest.raises(EquimetricError, match=f"{name} is made of distances"):
            evaluate(embeddings, labels, metrics=[name], geometry="dot")
    with pytest.raises(EquimetricError, match="a power above zero"):
        evaluate(embeddings, labels, metrics=["alignment@alpha=0"])
    with pytest.raises(EquimetricError, match="a distance between classes needs at least two"):
        evaluate(embeddings[:2], [0, 0], embeddings, labels, metrics=["pi_inter"])
    with pytest.raises(EquimetricError, match="unknown distance"):
        distance_within_classes(embeddings, labels, 6, "manhattan")
    with pytest.raises(EquimetricError, match="did you mean 'uniformity'"):
        evaluate(embeddings, labels, metrics=["uniformty"])
