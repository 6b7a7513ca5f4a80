"""The hyperbolic geometry: distances in the Poincaré ball of tangent vectors at its origin."""

import copy
import math
import pickle

import mpmath
import pytest
import torch
from rounding import assert_same_digits
from torch.nn.functional import normalize

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.geometry import HyperbolicGeometry, find_geometry
from equimetric.ops.hyperbolic import hyperbolic_distance

LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 3])


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def exact_distance(x, y, c, clip=math.inf):
    """In the ball, with three hundred digits."""
    with mpmath.workdps(300):
        root, points = mpmath.sqrt(c), []
        for vector in (x, y):
            vector = [mpmath.mpf(entry) for entry in vector.tolist()]
            length = mpmath.sqrt(sum(entry**2 for entry in vector))
            if not length:
                points.append(vector)
                continue
            scale = mpmath.tanh(root * min(length, mpmath.mpf(clip))) / (root * length)
            points.append([scale * entry for entry in vector])
        u, v = points
        apart = mpmath.sqrt(sum((a - b) ** 2 for a, b in zip(u, v, strict=True)))
        left = [1 - c * sum(a**2 for a in point) for point in points]
        return float(2 / root * mpmath.asinh(root * apart / mpmath.sqrt(left[0] * left[1])))


def exact_distances(queries, references, c, clip=math.inf):
    rows = [[exact_distance(x, y, c, clip) for y in references] for x in queries]
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("scale", [1e-4, 0.1, 1.0, 5.0, 12.0])
@pytest.mark.parametrize("curvature", [0.1, 1.0, 3.0])
def test_distances_are_those_of_the_ball_up_to_its_edge(curvature, scale):
    queries, references = scale * random(3, 4), scale * random(4, 4, seed=1)
    references[0] = 0
    references[1] = 2 * queries[0]
    exact = exact_distances(queries, references, curvature)
    assert_same_digits(hyperbolic_distance(queries, references, curvature), exact)
    single = hyperbolic_distance(queries.float(), references.float(), curvature).double()
    # Beyond 40/√c from the origin, where numbers of single precision end, points come to lie at that distance.
    within = [vectors.norm(dim=1) < 20 / math.sqrt(curvature) for vectors in (queries, references)]
    inside = within[0][:, None] & within[1]
    torch.testing.assert_close(single[inside], exact[inside], rtol=1e-4, atol=1e-4 * scale)
    assert (single <= exact.clamp_max(80 / math.sqrt(curvature)) * 1.001 + 1e-4 * scale).all()


def test_long_vectors_are_cut():
    vectors = 4 * random(4, 3)
    exact = exact_distances(vectors, vectors, 0.1, 2.3)
    assert (vectors.norm(dim=1) > 2.3).any()
    assert_same_digits(-find_geometry("hyperbolic").measure(vectors, vectors), exact)


def test_little_curvature_is_twice_the_plane():
    vectors = random(5, 3)
    distance = hyperbolic_distance(vectors, vectors, 1e-10)
    torch.testing.assert_close(distance, 2 * torch.cdist(vectors, vectors), rtol=1e-6, atol=1e-7)


def test_distances_are_a_metric_and_do_not_depend_on_the_axes():
    vectors = random(12, 4)
    turn = torch.linalg.qr(random(4, 4, seed=1))[0]
    distance = hyperbolic_distance(vectors, vectors, 1.0)
    torch.testing.assert_close(distance, distance.T)
    assert (distance.diagonal() == 0).all()
    assert (distance[:, None] <= distance[:, :, None] + distance[None] + 1e-12).all()
    torch.testing.assert_close(hyperbolic_distance(vectors @ turn, vectors @ turn, 1.0), distance)
    # From the origin, distances are twice the length of the tangent vector.
    torch.testing.assert_close(hyperbolic_distance(0 * vectors[:1], vectors, 1.0)[0], 2 * vectors.norm(dim=1))


def test_gradients_agree_with_finite_differences():
    pairs = random(4, 3).requires_grad_(), random(5, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: hyperbolic_distance(x, y, 0.7, 1.5), pairs)
    assert torch.autograd.gradcheck(lambda x: hyperbolic_distance(x, x, 0.7), (random(4, 3).requires_grad_(),))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["hyperbolic", "hyperbolic1-clipinf", "hyperbolic50-clipinf"])
def test_coincident_opposite_and_endless_vectors_have_finite_gradients(name, dtype):
    one = normalize(random(1, 4, dtype=dtype))
    vectors = torch.cat([one, one, -one, 1e6 * one, 1e6 * one, -1e6 * one, 0 * one, 1e-20 * one]).requires_grad_()
    for method in ("triplet", "contrastive", "hyp"):
        value = em.objective(method, geometry=name)(vectors, LABELS)
        (gradient,) = torch.autograd.grad(value, vectors)
        assert value.isfinite()
        assert gradient.isfinite().all()
    distance = -find_geometry(name).measure(vectors, vectors)
    assert distance.isfinite().all()
    assert distance[0, 1] == distance[3, 4] == 0


def test_pair_losses_become_hyperbolic():
    embeddings = random(len(LABELS), 4).requires_grad_()
    distance = hyperbolic_distance(embeddings, embeddings, 0.5, 2.3)
    same = LABELS[:, None] == LABELS
    positive, negative = same & ~torch.eye(len(LABELS), dtype=torch.bool), ~same
    violations = [
        distance[a, p] - distance[a, n] + 0.1
        for a, p in positive.nonzero().tolist()
        for n in negative[a].nonzero()[:, 0].tolist()
    ]
    active = [v for v in violations if v > 0]
    expected = torch.stack(active).mean()
    found = em.objective("triplet", geometry="hyperbolic0.5")(embeddings, LABELS)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        *(torch.autograd.grad(value, embeddings, retain_graph=True) for value in (found, expected))
    )
    logits = -hyperbolic_distance(embeddings, embeddings, 0.1, 2.3) / 0.2
    terms = [
        torch.cat([logits[a, p, None], logits[a][negative[a]]]).logsumexp(0) - logits[a, p]
        for a, p in positive.nonzero().tolist()
    ]
    torch.testing.assert_close(em.objective("hyp")(embeddings, LABELS), torch.stack(terms).mean())


@pytest.mark.parametrize("method", ["contrastive", "margin", "lifted", "proxy_triplet", "ntxent", "dcl"])
def test_losses_of_distances_take_it(method):
    options = {"selection": "all"} if method == "margin" else {}
    sizes = {"classes": 4, "dim": 4} if method == "proxy_triplet" else {}
    objective = em.objective(method, geometry="hyperbolic", **options, **sizes).double()
    embeddings = random(len(LABELS), 4).requires_grad_()
    objective(embeddings, LABELS).backward()
    assert embeddings.grad.isfinite().all()
    assert embeddings.grad.any()


def test_losses_of_cosines_refuse_it():
    with pytest.raises(EquimetricError, match=r"'multi_similarity' makes no sense in the hyperbolic geometry"):
        em.objective("multi_similarity", geometry="hyperbolic")
    with pytest.raises(EquimetricError, match="distances on the unit sphere do not follow"):
        em.objective("margin", geometry="hyperbolic")(random(len(LABELS), 4), LABELS)


def test_names():
    names = {"hyperbolic": (0.1, 2.3), "hyperbolic0.5": (0.5, 2.3), "hyperbolic2-clip4": (2, 4)}
    for name, given in names.items():
        assert find_geometry(name).name == HyperbolicGeometry(*given).name == name
    assert find_geometry("hyperbolic-clipinf").name == "hyperbolic0.1-clipinf"
    for wrong in ("hyperbolic0", "hyperbolic-clip0"):
        with pytest.raises(EquimetricError, match="is a number above 0"):
            find_geometry(wrong)
    with pytest.raises(EquimetricError, match="did you mean 'hyperbolic'"):
        find_geometry("hyperbollic")
    with pytest.raises(EquimetricError, match="curvature"):
        HyperbolicGeometry("1")
    with pytest.raises(EquimetricError, match="must be finite"):
        HyperbolicGeometry(math.inf)


def test_objectives_with_it_can_be_copied_and_saved():
    objective = em.objective("triplet", geometry=HyperbolicGeometry(0.7, clip=5))
    embeddings = random(len(LABELS), 4)
    for other in (copy.deepcopy(objective), pickle.loads(pickle.dumps(objective))):
        assert other(embeddings, LABELS) == objective(embeddings, LABELS)


def test_evaluation_ranks_by_it():
    embeddings, labels = 2 * random(60, 3), torch.arange(60) % 6
    found = em.evaluate(embeddings, labels, metrics=["recall@1", "map@r", "eer"], geometry="hyperbolic1-clipinf")
    distance = hyperbolic_distance(embeddings, embeddings, 1.0).fill_diagonal_(math.inf)
    nearest = labels[distance.argmin(1)]
    assert found["recall@1"] == pytest.approx((nearest == labels).double().mean().item())
    plain = em.evaluate(embeddings, labels, metrics=["recall@1"], geometry="euclidean")
    assert found["recall@1"] != plain["recall@1"], "the space is curved"
    assert "hyperbolic1-clipinf" in str(found)
    own = em.evaluate(embeddings, labels, metrics=["map@r"], geometry=HyperbolicGeometry(1.0, math.inf))
    assert own["map@r"] == found["map@r"]
