"""Objectives from parts: qualified options, geometries and references of one's own, copies and saved states."""

import copy
import io
import pickle
import subprocess
import sys
import tomllib

import pytest
import torch
from small_methods import OPTIONS

import equimetric as em
from equimetric.components import REFERENCES, references
from equimetric.geometry import GEOMETRIES, Geometry, add_geometry
from equimetric.objectives import Context, Objective, build_objective
from equimetric.objectives.recipes import recipes
from equimetric.references.base import PairTerms, References
from equimetric.references.batch import BatchReferences

LABELS = torch.tensor([0, 0, 1, 1, 1, 2])
CONTEXT = Context(classes=3, dim=4, images=6)


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# Qualified options


def margins(objective):
    return objective.loss.options["margin"], objective.selection.options["margin"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (0.2, 0.2)),
        ({"margin": 0.3}, (0.3, 0.3)),
        ({"selection.margin": 0.1}, (0.2, 0.1)),
        ({"loss.margin": 0.1}, (0.1, 0.2)),
        ({"selection.margin": 0.1, "margin": 0.3}, (0.3, 0.1)),
        ({"loss.margin": 0.1, "selection.margin": 0.4}, (0.1, 0.4)),
        ({"triplet_semihard.selection.margin": 0.1}, (0.2, 0.1)),
        ({"selection": {"margin": 0.1}}, (0.2, 0.1)),
        (tomllib.loads("[options]\n'selection.margin' = 0.1")["options"], (0.2, 0.1)),
        (tomllib.loads("[options]\nselection.margin = 0.1\nloss.margin = 0.5")["options"], (0.5, 0.1)),
    ],
)
def test_an_option_of_loss_and_selection_goes_to_both_unless_it_is_qualified(options, expected):
    assert margins(em.objective("triplet_semihard", **options)) == expected


def test_the_qualified_margin_changes_the_selection_alone():
    embeddings = random(6, 4)
    value = em.objective("triplet_semihard", **{"loss.margin": 1.0, "selection.margin": 0.05})(embeddings, LABELS)
    selection = em.objective("triplet_semihard", margin=0.05)
    chosen = selection.select(selection.pairs(embeddings, LABELS))
    expected = em.LOSSES["triplet"].definition(chosen, margin=1.0)
    torch.testing.assert_close(value, expected)
    assert value != em.objective("triplet_semihard", margin=1.0)(embeddings, LABELS)


def test_qualified_options_in_sums():
    both = em.objective(
        "triplet_semihard+0.5*triplet_batch_hard+xbm",
        **{"triplet_semihard.selection.margin": 0.1, "triplet_batch_hard.margin": 0.7, "references.size": 9, "dim": 4},
    )
    semihard, hard, memory = both.objectives
    assert margins(semihard) == (0.2, 0.1)
    assert hard.loss.options["margin"] == 0.7
    assert memory.references.size == 9


def test_a_qualified_option_goes_to_the_only_term_that_takes_it():
    both = em.objective("triplet_semihard+triplet_batch_hard", **{"selection.margin": 0.1})
    assert margins(both.objectives[0]) == (0.2, 0.1)


def test_a_qualified_option_switches_an_implied_selection_on():
    assert em.objective("multi_similarity", **{"selection.epsilon": 0.3}).selection.options["epsilon"] == 0.3
    assert em.objective("multi_similarity", **{"selection.epsilon": None}).selection.name == "all"


def test_qualified_options_replace_sizes_from_the_data():
    objective = build_objective("margin_class", {"loss.beta_class": 7}, CONTEXT)
    assert objective.loss.beta_class.shape == (7,)
    assert em.objective("margin_class", **{"loss.beta_class": 7}).loss.beta_class.shape == (7,)
    assert build_objective("arcface", {"references.classes": 9}, CONTEXT).references.classes == 9


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("triplet_semihard", {"selection.margn": 0.1}, "no option 'selection.margn'; did you mean 'selection.margin'"),
        ("triplet_semihard", {"selecton.margin": 0.1}, "unknown term .* did you mean 'selection'"),
        ("triplet", {"references.size": 3}, "no option 'references.size'"),
        ("triplet_semihard+triplet_facenet", {"loss.margin": 0.1}, "say triplet_semihard.loss.margin or"),
    ],
)
def test_errors_of_qualified_options_say_what_to_do(method, options, message):
    with pytest.raises(em.EquimetricError, match=message):
        em.objective(method, **options)


def test_a_selection_may_be_a_module():
    class Nearest(torch.nn.Module):
        def forward(self, pairs):
            return pairs.keep(positive=pairs.positive, negative=pairs.similarity > 0)

    value = em.objective("contrastive_cosine", lam=0.0, selection=Nearest())(random(6, 4), LABELS)
    torch.testing.assert_close(value, em.objective("contrastive_cosine", lam=0.0)(random(6, 4), LABELS))


# A geometry of one's own


def manhattan(queries, references):
    return -torch.cdist(queries, references, p=1)


class Scaled(Geometry):
    """s = −scale · ‖q − r‖₁."""

    def __init__(self, scale):
        self.scale = scale
        super().__init__("scaled", self.compare, to_distance=torch.neg, normalize=False)

    def compare(self, queries, references):
        return self.scale * manhattan(queries, references)


MANHATTAN = Geometry("manhattan", manhattan, to_distance=torch.neg, default_margin=0.5)


@pytest.mark.parametrize("geometry", [MANHATTAN, Scaled(2.0)], ids=lambda geometry: geometry.name)
def test_an_objective_in_a_geometry_of_ones_own(geometry):
    embeddings = random(6, 4).requires_grad_()
    objective = em.objective("triplet", geometry=geometry, reduction="mean", margin=0.5)
    value = objective(embeddings, LABELS)
    points = torch.nn.functional.normalize(embeddings) if geometry.normalize else embeddings
    distance = torch.cdist(points, points, p=1) * getattr(geometry, "scale", 1)
    triples = [
        (distance[a, p] - distance[a, n] + 0.5).clamp_min(0)
        for a in range(6)
        for p in range(6)
        for n in range(6)
        if a != p and LABELS[a] == LABELS[p] and LABELS[a] != LABELS[n]
    ]
    torch.testing.assert_close(value, torch.stack(triples).mean())
    for other in (pickle.loads(pickle.dumps(objective)), copy.deepcopy(objective)):
        assert other(embeddings, LABELS) == value
    assert em.pair_weights(objective, embeddings.detach(), LABELS).shape == (6, 6)


def test_the_margin_of_ones_own_geometry_is_its_default():
    value = em.objective("triplet", geometry=MANHATTAN)(random(6, 4), LABELS)
    assert value == em.objective("triplet", geometry=MANHATTAN, margin=0.5)(random(6, 4), LABELS)


KERNEL = Geometry("kernel", lambda q, r: (-torch.cdist(q, r)).exp(), bounded=True)


@pytest.mark.parametrize("method", ["contrastive", "margin", "lifted", "multi_similarity", "arcface", "softmax"])
def test_a_loss_takes_a_geometry_that_offers_what_it_needs(method):
    offers = {"bounded": {"bounded": True}, "inner": {"inner_product": True}, "distance": {"to_distance": torch.neg}}
    needs = {"multi_similarity": "bounded", "arcface": "bounded", "softmax": "inner"}.get(method, "distance")
    options = {"classes": 3, "dim": 4} if method in ("arcface", "softmax") else {}
    if method == "margin":
        options = {"selection": "all"}
    for offer, fields in offers.items():
        geometry = Geometry("own", lambda q, r: (-torch.cdist(q, r)).exp(), **fields)
        if offer == needs:
            assert em.objective(method, geometry=geometry, **options)(random(6, 4), LABELS).isfinite()
        else:
            with pytest.raises(em.EquimetricError, match="makes no sense in the own geometry; it needs"):
                em.objective(method, geometry=geometry, **options)


@pytest.mark.parametrize(
    ("method", "geometry", "message"),
    [
        ("magnet", KERNEL, "compares nothing"),
        ("triplet", Geometry("cosine", manhattan), "a geometry named 'cosine' already"),
        ("triplet", manhattan, "a geometry is a name or a Geometry, not function"),
        ("contrastive", "dot", "it is defined for: euclidean, cosine, sqeuclidean"),
    ],
)
def test_geometries_that_make_no_sense_are_errors(method, geometry, message):
    with pytest.raises(em.EquimetricError, match=message):
        em.objective(method, geometry=geometry)


def test_a_built_in_geometry_may_be_given_as_an_object():
    given = em.objective("multi_similarity", geometry=copy.deepcopy(GEOMETRIES["cosine"]))
    assert given(random(6, 4), LABELS) == em.objective("multi_similarity")(random(6, 4), LABELS)


def test_selections_say_what_they_miss_in_a_geometry():
    objective = em.objective("triplet", geometry=MANHATTAN, selection="distance_weighted")
    with pytest.raises(em.EquimetricError, match="do not follow from the manhattan geometry"):
        objective(random(6, 4), LABELS)


def test_a_registered_geometry_is_found_by_name(monkeypatch):
    monkeypatch.delitem(GEOMETRIES, MANHATTAN.name, raising=False)
    add_geometry(MANHATTAN)
    assert em.objective("contrastive", geometry="manhattan").geometry is MANHATTAN
    with pytest.raises(em.EquimetricError, match="it needs similarities in"):
        em.objective("arcface", geometry="manhattan", classes=3, dim=4)
    with pytest.raises(em.EquimetricError, match="a geometry named 'manhattan' already"):
        add_geometry(Geometry("manhattan", manhattan))
    del GEOMETRIES[MANHATTAN.name]
    with pytest.raises(em.EquimetricError, match="unknown geometry 'manhattan'"):
        em.objective("contrastive", geometry="manhattan")


def test_a_geometry_of_a_plug_in_is_found_by_name(tmp_path):
    (tmp_path / "my_geometry.py").write_text(
        "import torch\nfrom equimetric.geometry import Geometry, add_geometry\n\n"
        "add_geometry(Geometry('city', lambda q, r: -torch.cdist(q, r, p=1), to_distance=torch.neg))\n"
    )
    metadata = tmp_path / "my_geometry-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-geometry\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[equimetric.plugins]\nmy_geometry = my_geometry\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from equimetric.geometry import find_geometry; print(find_geometry('city').name)"
    )
    assert "city" in subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


# References of one's own


class TwoHalves(References):
    """The batch against each half of itself, the second half with weight 3, and a penalty of 5."""

    def __init__(self):
        super().__init__()
        self.batch, self.calls = BatchReferences(), 0

    def forward(self, geometry, normalize, inputs):
        ((_, pairs),) = self.batch(geometry, normalize, inputs).weighted_pairs
        half = torch.arange(len(inputs.labels)) < len(inputs.labels) // 2
        parts = [pairs.keep(positive=side, negative=side) for side in (half, ~half)]
        return PairTerms(list(zip((1.0, 3.0), parts, strict=True)), torch.tensor(5.0))

    def after_loss(self, terms):
        self.calls += len(terms.weighted_pairs)


def test_the_objective_is_the_weighted_sum_over_sets_of_pairs_and_the_penalty():
    def pull(pairs):
        return -pairs.similarity[pairs.positive].sum()

    own, embeddings = TwoHalves(), random(6, 4)
    composed = em.objective(pull)
    objective = Objective(
        "own", loss=composed.loss, geometry=composed.geometry, references=own, selection=composed.selection
    )
    cosine = torch.nn.functional.normalize(embeddings) @ torch.nn.functional.normalize(embeddings).T
    same = (LABELS[:, None] == LABELS) & ~torch.eye(6, dtype=torch.bool)
    halves = [-(cosine * same)[:, columns].sum() for columns in (slice(3), slice(3, 6))]
    torch.testing.assert_close(objective(embeddings, LABELS), halves[0] + 3 * halves[1] + 5)
    assert own.calls == 2
    assert list(objective.terms(embeddings, LABELS)) == ["own"]
    with pytest.warns(UserWarning, match="leave out"):
        em.pair_weights(objective, embeddings, LABELS)


def test_registered_references_stand_in_the_place_of_others(monkeypatch):
    REFERENCES.discover()
    for table in ("_records", "_modules"):
        monkeypatch.setattr(REFERENCES, table, dict(getattr(REFERENCES, table)))
    references("halves", substitutes_for="batch")(TwoHalves)
    value = em.objective("contrastive", references="halves")(random(6, 4), LABELS)
    torch.testing.assert_close(em.objective("contrastive", references=TwoHalves())(random(6, 4), LABELS), value)
    with pytest.raises(em.EquimetricError, match="makes no sense with references 'halves'"):
        em.objective("proxy_anchor", references="halves")


def test_terms_of_pairs_that_differ_in_number_cannot_be_added():
    objective = em.objective("contrastive", reduction="none", references="memory", dim=4, start_iteration=0).double()
    objective(random(6, 4), LABELS)
    with pytest.raises(em.EquimetricError, match="reduction='none' gives each set of pairs its own terms"):
        objective(random(4, 4, seed=1), LABELS[:4])
    by_query = em.objective("binomial", reduction="none", references="memory", dim=4, start_iteration=0).double()
    by_query(random(6, 4), LABELS)
    assert by_query(random(4, 4, seed=1), LABELS[:4]).shape == (4,)


# Copies and saved states


def built(method):
    torch.manual_seed(1)
    return build_objective(method, OPTIONS.get(method, {}), CONTEXT).double()


def value_of(objective, seed=0):
    torch.manual_seed(2)
    return objective(random(6, 4, seed=seed), LABELS, index=torch.arange(6)).detach()


ALONE = sorted(name for name, recipe in recipes().items() if recipe.stands_alone)


@pytest.mark.parametrize("method", ALONE)
def test_every_recipe_can_be_pickled_and_copied(method):
    objective = built(method)
    copies = [pickle.loads(pickle.dumps(objective)), copy.deepcopy(objective)]
    value = value_of(objective)
    for other in copies:
        assert torch.equal(value_of(other), value)


KEYS = {
    "batch": [],
    "prototypes": [],
    "proxies": ["weight"],
    "memory": ["embeddings", "filled", "iteration", "labels", "pointer"],
}


@pytest.mark.parametrize("method", ALONE)
def test_references_resume_from_their_saved_state(method):
    """The names of the entries are those of runs that are stored already."""
    objective = built(method)
    value_of(objective)
    state = io.BytesIO()
    torch.save(objective.state_dict(), state)
    state.seek(0)
    saved = torch.load(state, weights_only=True)
    kind = recipes()[method].parts()[2].name
    assert sorted(key for key in saved if key.startswith("references.")) == [f"references.{key}" for key in KEYS[kind]]
    resumed = built(method)
    resumed.load_state_dict(saved)
    assert torch.equal(value_of(resumed, seed=1), value_of(objective, seed=1))


def test_the_state_of_proxies_has_its_old_names():
    objective = em.objective("softmax+arcface", **{"softmax.bias": True, "arcface.sample_rate": 0.5}, **SIZES)
    assert sorted(objective.state_dict()) == [
        "objectives.0.references.bias",
        "objectives.0.references.weight",
        "objectives.1.references.sampled_steps",
        "objectives.1.references.sampling_seed",
        "objectives.1.references.weight",
    ]


SIZES = {f"{term}.{size}": 4 for term in ("softmax", "arcface") for size in ("classes", "dim")}


def test_recipes_and_their_grammar_need_no_torch():
    code = (
        "import sys; from equimetric.objectives.recipes import ROWS\n"
        "from equimetric.objectives import grammar, published\n"
        "assert ROWS[0].options == {'margin': 0.2}; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
