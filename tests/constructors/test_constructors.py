"""Components as functions: they build what their names build, with the options that their signatures say."""

import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import get_args

import pytest
import torch

import equimetric as em
from equimetric.components import REFERENCES, SELECTIONS, FunctionModule
from equimetric.constructors.stubs import KINDS, LOSS_FUNCTIONS
from equimetric.errors import EquimetricError
from equimetric.geometry import BUILT_IN, find_geometry
from equimetric.objectives.part_names import GeometryName, ReferencesName, SelectionName
from equimetric.objectives.recipes import recipes

ROOT = Path(__file__).parents[2]
LABELS = torch.arange(6).repeat_interleave(3)


def batch():
    return torch.randn(18, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()


def value(objective):
    torch.manual_seed(1)
    embeddings = batch()
    loss = objective.double()(embeddings, LABELS)
    return loss.detach(), torch.autograd.grad(loss, embeddings)[0]


def same(first, second):
    torch.testing.assert_close(value(first), value(second), rtol=0, atol=0)


def test_the_generated_files_are_up_to_date():
    """In a process of its own, without components that other tests register."""
    code = """
        from equimetric.constructors.stubs import generated_files
        print(*(file.name for file, content in generated_files().items() if file.read_text("utf-8") != content))
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    old = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert old == [], "run `make docs`"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_component_is_a_function_of_its_module(kind):
    module = getattr(em, kind.name)
    assert dir(module) == sorted(kind.names())
    for name in kind.names():
        function = getattr(module, name)
        assert function is getattr(module, name)
        assert function.__name__ == name
        assert function.__doc__
        assert inspect.signature(function).return_annotation is not inspect.Signature.empty


def test_methods_have_the_options_of_their_parts():
    parameters = inspect.signature(em.losses.multi_similarity_miner).parameters
    assert {"alpha", "beta", "epsilon", "selection", "geometry", "references"} <= set(parameters)
    assert inspect.signature(em.losses.triplet_semihard).parameters["margin"].default == 0.2
    assert inspect.signature(em.losses.arcface).parameters["classes"].default is inspect.Parameter.empty
    assert inspect.signature(em.losses.margin_class).parameters["beta_class"].default is inspect.Parameter.empty


def test_every_default_is_that_of_the_method():
    for name, recipe in recipes().items():
        parameters = inspect.signature(getattr(em.losses, name)).parameters
        for option, default in recipe.defaults.items():
            if option not in recipe.context:
                assert parameters[option].default == default, (name, option)


def test_a_function_builds_what_its_name_builds():
    same(em.losses.triplet(margin=0.3), em.objective("triplet", margin=0.3))
    same(em.losses.margin_class(beta_class=6), em.objective("margin_class", beta_class=6))
    torch.manual_seed(0)
    first = em.losses.arcface(classes=6, dim=4, scale=8.0)
    torch.manual_seed(0)
    same(first, em.objective("arcface", classes=6, dim=4, scale=8.0))


def test_parts_that_are_made_equal_parts_that_are_named():
    made = em.losses.contrastive(
        selection=em.selections.pair_margin(pos_margin=0.1, neg_margin=0.9), geometry=em.geometries.cosine()
    )
    named = em.objective(
        "contrastive",
        selection="pair_margin",
        geometry="cosine",
        **{"selection.pos_margin": 0.1, "selection.neg_margin": 0.9},
    )
    same(made, named)
    torch.manual_seed(0)
    first = em.losses.contrastive_cosine(references=em.references.proxies(classes=6, dim=4))
    torch.manual_seed(0)
    same(first, em.objective("contrastive_cosine", references="proxies", classes=6, dim=4))
    same(
        em.losses.triplet(geometry=em.geometries.hyperbolic(curvature=0.5)),
        em.objective("triplet", geometry="hyperbolic0.5"),
    )


@pytest.mark.parametrize("selection", sorted(SELECTIONS))
def test_a_selection_that_is_made_is_computed_as_the_named_one(selection):
    """In rows by themselves only where its record says that rows may be chosen from by themselves."""
    made = em.objective("contrastive", selection=getattr(em.selections, selection)())
    named = em.objective("contrastive", selection=selection)
    if isinstance(made.selection, FunctionModule):
        assert made.separable == named.separable
    assert not made.separable or named.separable


def test_a_loss_that_is_made_keeps_its_geometry():
    built = em.LOSSES["margin_loss"].build({"alpha": 0.1})
    objective = em.objective(built)
    assert objective.geometry.name == "euclidean"
    assert objective.takes == "triplets"
    with pytest.raises(EquimetricError, match="no option 'alpha'"):
        em.objective(built, alpha=0.2)


def test_samplers_backbones_heads_and_data_sets():
    sampler = em.batches.class_balanced(LABELS, classes_per_batch=2, samples_per_class=2, seed=1)
    assert len(LABELS[next(iter(sampler))].unique()) == 2
    backbone = em.backbones.small_cnn(channels=1)
    head = em.heads.linear(backbone.num_features, 5)
    assert head(backbone(torch.zeros(2, 1, 32, 32))).shape == (2, 5)
    assert em.datasets.digits().fingerprint == em.load_dataset("digits").fingerprint
    assert isinstance(em.references.batch(), REFERENCES["batch"].definition)


VALUES = {"classes": 6, "dim": 24, "images": 18, "beta_class": 6, "beta_image": 18, "ns": 1, "nq": 1, "nc": 6}


@pytest.mark.parametrize("name", sorted(name for name, recipe in recipes().items() if recipe.stands_alone))
def test_every_way_to_call_a_method_builds_it(name):
    """With what the stubs say is required, and one option of the references by name."""
    for signature in LOSS_FUNCTIONS.signatures(name):
        options = {one.name: one for one in signature.parameters}
        given = {key: VALUES[key] for key, one in options.items() if one.default is one.empty and key != "references"}
        if options["references" if "references" in options else "geometry"].default is inspect.Parameter.empty:
            choices = get_args(options["references"].annotation)
            given["references"] = (
                choices[0] if isinstance(choices[0], str) else em.references.proxies(classes=6, dim=24)
            )
            if given["references"] == "memory":
                given["size"] = 32
        built = getattr(em.losses, name)(**given)
        assert isinstance(built, em.Objective)


def test_options_with_few_choices_list_them_in_the_stub():
    text = (ROOT / "src" / "equimetric" / "constructors" / "losses.pyi").read_text()
    assert "mode: Literal['plain', 'monotone', 'easy'] = 'monotone'," in text
    assert "reduction: Literal['nonzero', 'mean', 'sum', 'batch', 'valid', 'none', 'query'] | None = None," in text
    assert "reduction: str" not in text
    assert "mode: str" not in text


def test_names_of_parts_are_listed_for_type_checkers():
    """Other tests may register more."""
    assert set(get_args(SelectionName)) <= set(SELECTIONS)
    assert set(get_args(ReferencesName)) <= set(REFERENCES)
    assert set(get_args(GeometryName)) >= BUILT_IN
    assert all(find_geometry(name).name == name for name in get_args(GeometryName))


def test_learners_are_tables_of_a_configuration():
    assert em.learners.matryoshka(sizes=[4, 8]) == {"name": "matryoshka", "options": {"sizes": [4, 8]}}
    with pytest.raises(EquimetricError, match="gamma"):
        em.learners.s2sd(gama=1.0)
    with pytest.raises(EquimetricError, match="temperature must be a number above 0"):
        em.learners.s2sd(temperature=0.0)


def test_wrong_names_and_options_raise_errors():
    with pytest.raises(AttributeError, match="triplet"):
        em.losses.tripplet  # noqa: B018
    with pytest.raises(EquimetricError, match="margin"):
        em.losses.triplet(margn=0.1)
    with pytest.raises(EquimetricError, match="scale must be"):
        em.losses.arcface(classes=6, dim=4, scale=-1.0)
    with pytest.raises(EquimetricError, match="no option"):
        em.selections.semihard(margn=0.1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: em.losses.triplet(0.1), "em.losses.triplet takes options by name, got 0.1 without one; "),
        (lambda: em.losses.triplet(0.1), "write em.losses.triplet(margin=…)"),
        (lambda: em.selections.semihard(0.1), "write em.selections.semihard(margin=…)"),
        (lambda: em.selections.batch_hard(0.1), "too many positional arguments; write em.selections.batch_hard()"),
        (lambda: em.datasets.folder("images"), "write em.datasets.folder(root=…)"),
        (lambda: em.learners.s2sd([32]), "write em.learners.s2sd(dims=…)"),
        (lambda: em.backbones.small_cnn(1), "write em.backbones.small_cnn(channels=…)"),
        (lambda: em.heads.linear(), "em.heads.linear: missing a required argument: 'features'; write em.heads.linear("),
        (lambda: em.heads.linear(8, 4, droput=0.1), "'droput'; write em.heads.linear(features, dim, dropout=0.0)"),
        (lambda: em.geometries.lp(), "'p'; write em.geometries.lp(p, *, normalize=True)"),
        (lambda: em.geometries.cosine(normalise=False), "'normalise'; write em.geometries.cosine()"),
        (lambda: em.batches.class_balanced(), "'labels'; write em.batches.class_balanced(labels, "),
    ],
)
def test_arguments_that_do_not_fit_raise_errors(call, message):
    with pytest.raises(EquimetricError, match=re.escape(message)):
        call()


def test_rooms_do_not_take_the_place_of_public_names():
    code = """
        import equimetric.losses.triplet, equimetric.selection
        import equimetric.learners.single, equimetric.references.proxies
        import equimetric as em
        from equimetric import losses
        from equimetric.losses.triplet import triplet
        assert callable(em.selection) and callable(em.losses.triplet) and callable(em.references.proxies)
        assert losses is em.losses and triplet is not losses.triplet
        assert em.learners.Learner is __import__("importlib").import_module("equimetric.learners").Learner
        assert em.losses.triplet(margin=0.1)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_selections_are_imported_from_a_module_of_their_name():
    code = """
        from equimetric.selections import semihard
        import equimetric.selections, equimetric as em
        assert semihard is em.selections.semihard
        assert dir(equimetric.selections) == dir(em.selections)
        assert callable(em.selection)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
    with pytest.raises(ImportError, match="semihrd"):
        from equimetric.selections import semihrd  # noqa: F401


def test_a_loss_brings_neither_data_nor_learners():
    code = "import sys, equimetric as em; em.losses.triplet(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"equimetric.data", "equimetric.learners", "equimetric.backbones"} & set(loaded)


SAMPLE = """
import torch
import equimetric as em
from equimetric.selections import semihard

objective: em.Objective = em.objective("triplet", margin=0.1)
several: em.Objective | em.ObjectiveSum = em.objective("contrastive+tcm")
em.losses.triplet(margin=0.1, selection=em.selections.semihard(margin=0.1), geometry=em.geometries.lp(p=1))
em.losses.arcface(classes=5, dim=8, scale=30.0)
em.losses.arcface(references=em.references.proxies(classes=5, dim=8))
em.losses.triplet(references="memory", size=1024, dim=8, reduction="mean")
em.losses.triplet(references="proxies", classes=5, dim=8)
value: torch.Tensor = em.losses.triplet()(torch.zeros(2, 2), torch.zeros(2))
version: str = em.__version__
em.batches.class_balanced(torch.arange(4), classes_per_batch=2, samples_per_class=2)
table: dict[str, object] = em.learners.s2sd(gamma=1.0)
em.datasets.folder(root="images", size=32)
em.learners.Learner


def keep(pairs: em.Pairs) -> em.Pairs:
    return pairs


class Keep(torch.nn.Module):
    def forward(self, pairs: em.Pairs) -> em.Pairs:
        return pairs


name: str = "semihard"
em.losses.triplet(selection="semihard", geometry="l3", references="batch")
em.losses.triplet(selection=keep)
em.losses.triplet(selection=semihard(margin=0.1))
em.losses.triplet(selection=Keep())
em.losses.triplet(selection=lambda pairs: em.TripletBand(pairs))
named: em.Objective = em.objective("triplet", selection=name, geometry="l1.5")
own: em.Objective = em.objective(lambda pairs: pairs.similarity.sum(), selection=keep)
qualified: em.Objective = em.objective("triplet_semihard", **{"selection.margin": 0.1})
"""

WRONG = {
    "em.losses.triplet(margn=0.1)": 'did you mean "margin"?',
    "em.losses.triplet(margin='wide')": "No overload",
    "em.losses.triplet(reduction='average')": "No overload",
    "em.losses.triplet(references='memory', dim=8, sice=3)": "No overload",
    "em.losses.pnp(variant='A')": "No overload",
    "em.losses.triplet(0.1)": "No overload",
    "from equimetric.selections import semihrd": "semihrd",
    "em.losses.triplet(selection='semihrd')": "No overload",
    "em.losses.triplet(geometry='cosin')": "No overload",
    "em.losses.triplet(references='memry')": "No overload",
    "em.losses.triplet(selection=em.selections.semihard)": 'expected "Literal[',
    "em.losses.triplet(selection=em.losses.contrastive())": 'incompatible type "Objective"',
    "em.references.proxies(classes=2, dim=2, pool='mean')": "pool",
    "number: int = em.objective('triplet')(torch.zeros(2, 2), torch.zeros(2))": "Incompatible types",
    "em.losses.arcface(dim=8)": "No overload",
    "em.losses.tripplet()": "tripplet",
    "em.selections.semihard(margin=[])": "margin",
    "em.references.memory(sice=3)": "sice",
    "em.batches.class_balanced(torch.arange(4), classes_per_batch='2', samples_per_class=2)": "classes_per_batch",
    "em.learners.s2sd(gama=1.0)": "gama",
    "em.datasets.folder()": "root",
    "one: em.Objective = em.objective('contrastive+tcm')": "Incompatible types",
}


@pytest.mark.slow
def test_a_type_checker_accepts_what_is_right_and_nothing_else(tmp_path):
    wrong = [f"{line}  # wrong" for line in WRONG]
    file = tmp_path / "sample.py"
    file.write_text("\n".join([SAMPLE, *wrong, ""]))
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(file)]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    found = {int(line): text for line, text in re.findall(r"sample\.py:(\d+): error: (.*)", shown)}
    lines = file.read_text().splitlines()
    expected = {number: text for number, text in enumerate(lines, 1) if text.endswith("# wrong")}
    assert sorted(found) == sorted(expected), shown
    for number, word in zip(sorted(expected), WRONG.values(), strict=True):
        assert word in found[number], shown
