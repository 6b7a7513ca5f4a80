import pytest
import torch

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.objectives import PUBLISHED, Context, build_objective, find_recipe
from equimetric.objectives.published import UNBIASED

LABELS = torch.arange(5).repeat_interleave(4)
CONTEXT = Context(classes=5, dim=24, images=len(LABELS))


@pytest.mark.parametrize(
    ("method", "options"),
    [row for rows in PUBLISHED.values() for row in rows.values()],
    ids=[name for rows in PUBLISHED.values() for name in rows],
)
def test_every_published_row_can_be_built_and_trained(method, options):
    torch.manual_seed(0)
    embeddings = torch.randn(len(LABELS), CONTEXT.dim, requires_grad=True)
    objective = build_objective(method, options, CONTEXT)
    objective(embeddings, LABELS, index=torch.arange(len(LABELS))).backward()
    assert torch.isfinite(embeddings.grad).all()
    assert embeddings.grad.abs().sum() > 0


def unbiased(row):
    method, options = PUBLISHED[UNBIASED][row]
    return build_objective(method, options, CONTEXT)


def test_the_semihard_triplets_of_the_unbiased_evaluation_are_of_raw_embeddings_with_margin_one():
    embeddings = 0.3 * torch.randn(len(LABELS), 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    squared = torch.cdist(embeddings, embeddings).square()
    terms = []
    for a, p in ((a, p) for a in range(len(LABELS)) for p in range(len(LABELS)) if a != p and LABELS[a] == LABELS[p]):
        negatives = squared[a][LABELS[a] != LABELS]
        beyond = negatives[negatives > squared[a, p]]
        chosen = beyond.min() if len(beyond) else negatives.max()
        terms.append((squared[a, p] - chosen + 1).relu())
    torch.testing.assert_close(unbiased("Triplet Semihard")(embeddings, LABELS), torch.stack(terms).mean())


def test_the_margin_loss_of_the_unbiased_evaluation_has_a_boundary_for_every_class():
    objective = unbiased("Margin Loss")
    assert objective.loss.beta_class.shape == (CONTEXT.classes,)
    assert repr(objective.selection) == repr(em.objective("margin").selection)


def test_the_angular_loss_of_the_unbiased_evaluation_is_without_n_pairs():
    embeddings = torch.randn(len(LABELS), 6, generator=torch.Generator().manual_seed(0))
    value = unbiased("Angular Loss")(embeddings, LABELS)
    torch.testing.assert_close(value, em.objective("angular", alpha_deg=45)(embeddings, LABELS))
    # N-pairs of raw embeddings would depend on their length.
    torch.testing.assert_close(unbiased("Angular Loss")(3 * embeddings, LABELS), value)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("raw", {"selection": "distance_weighted"}),
        ("raw", {"selection": "semihard", "margin": 0.2}),
        ("binomial", {"selection": "vthm", "epsilon": 0.1}),
        ("triplet", {"references": "proxies", "classes": 5, "dim": 6}),
        ("contrastive", {"references": "memory", "dim": 6, "size": 64}),
        ("ntxent", {"references": "memory", "dim": 6, "size": 64}),
        ("contrastive+0.5*tcm+triplet", {"triplet.margin": 0.3, "tcm.m_pos": 0.8}),
    ],
)
def test_unpublished_combinations(method, options):
    torch.manual_seed(0)
    embeddings = torch.randn(len(LABELS), 6, requires_grad=True)
    em.objective(method, **options)(embeddings, LABELS).backward()
    assert torch.isfinite(embeddings.grad).all()


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("arcface", {"geometry": "euclidean", "classes": 5, "dim": 6}, "makes no sense in the euclidean geometry"),
        ("lifted", {"references": "proxies", "classes": 5, "dim": 6}, "makes no sense with references 'proxies'"),
        ("contrastive", {"selection": "semi_hard"}, "did you mean 'semihard'"),
        ("contrastive", {"geometry": "cosin"}, "did you mean 'cosine'"),
        ("contrastive", {"references": "batches"}, "did you mean 'batch'"),
        ("contrastive", {"neg_magin": 1.0}, "did you mean 'neg_margin'"),
        ("arcface", {"dim": 6}, "needs classes=…"),
        ("margin_class", {}, "needs beta_class=…"),
        ("nan*triplet", {}, "'nan' in 'nan\\*triplet' is not a number"),
        ("inf*triplet", {}, "is not a number"),
        ("arcface+arcface", {"classes": 3}, "make each objective by itself and add them up"),
        ("triplet", {"mining": "hard", "selection": "hard"}, "another name for"),
        ("contrastive+arcface", {"reduction": "mean", "classes": 5, "dim": 6}, "belongs to several terms"),
        ("contrastive+tcm", {"tmc.m_pos": 0.9}, "did you mean 'tcm'"),
        ("contrastive+half*tcm", {}, "is not a number"),
    ],
)
def test_nonsense_is_an_error_that_explains_why(method, options, message):
    with pytest.raises(EquimetricError, match=message):
        em.objective(method, **options)


def test_a_module_of_ones_own_as_loss():
    class Pull(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.strength = torch.nn.Parameter(torch.tensor(2.0))

        def forward(self, pairs):
            return self.strength * (1 - pairs.similarity[pairs.positive]).mean()

    objective = em.objective(Pull())
    assert [name for name, _ in objective.named_parameters()] == ["loss.strength"]
    one = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert objective(one, torch.tensor([0, 0, 1])).item() == pytest.approx(2.0)
    with pytest.raises(EquimetricError, match="no option 'strength'"):
        em.objective(Pull(), strength=3.0)


@pytest.mark.parametrize(
    ("method", "change", "kept"),
    [
        ("triplet_semihard", {"selection": "batch_hard"}, {"margin": 0.2}),
        ("triplet_semihard", {"mining": "batch_hard"}, {"margin": 0.2}),
        ("triplet_facenet", {"geometry": "euclidean"}, {"margin": 0.2}),
        ("proxy_triplet", {"geometry": "cosine"}, {"initial": "xavier"}),
        ("normalized_softmax", {"references": "batch"}, {}),
        ("subcenter_arcface", {"references": "batch"}, {}),
        ("pads", {"selection": "all"}, {"beta": 0.6}),
    ],
)
def test_options_of_a_replaced_part_are_dropped_and_others_kept(method, change, kept):
    assert find_recipe(method).own_options(change) == kept


def test_recipes_keep_their_margin_with_another_selection():
    embeddings, labels = torch.eye(6)[:, :4] + 0.3, torch.tensor([0, 0, 1, 1, 2, 2])
    changed = em.objective("triplet_semihard", selection="batch_hard")
    torch.testing.assert_close(
        changed(embeddings, labels), em.objective("triplet", margin=0.2, selection="batch_hard")(embeddings, labels)
    )
    assert em.objective("subcenter_arcface", references="batch")(embeddings, labels).isfinite()
