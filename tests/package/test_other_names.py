"""Names of other libraries and papers lead to ours."""

import subprocess
import sys

import pytest

import equimetric as em
from equimetric.batches.registry import BATCHES
from equimetric.components import LOSSES, REFERENCES, SELECTIONS
from equimetric.configuration import load_config
from equimetric.errors import EquimetricError, did_you_mean
from equimetric.objectives.recipes import recipes
from equimetric.objectives.unknown_method import method_names_elsewhere
from equimetric.other_names import AMBIGUOUS_NAMES, simplify, translate_name
from equimetric.runs.configuration import RunConfig

# Class of pytorch-metric-learning → method.
LOSSES_ELSEWHERE = {
    "AngularLoss": "angular",
    "ArcFaceLoss": "arcface",
    "CircleLoss": "circle",
    "ContrastiveLoss": "contrastive",
    "CosFaceLoss": "cosface",
    "CrossBatchMemory": "xbm",
    "FastAPLoss": "fastap",
    "GeneralizedLiftedStructureLoss": "lifted_generalized",
    "HistogramLoss": "histogram",
    "IntraPairVarianceLoss": "intra_pair_variance",
    "LargeMarginSoftmaxLoss": "large_margin_softmax",
    "LiftedStructureLoss": "lifted",
    "MarginLoss": "margin_loss",
    "MultiSimilarityLoss": "multi_similarity",
    "NCALoss": "nca",
    "NPairsLoss": "npairs",
    "NTXentLoss": "ntxent",
    "NormalizedSoftmaxLoss": "normalized_softmax",
    "ProxyAnchorLoss": "proxy_anchor",
    "ProxyNCALoss": "proxy_nca_plus_plus",
    "RankedListLoss": "ranked_list",
    "SignalToNoiseRatioContrastiveLoss": "snr_contrastive",
    "SmoothAPLoss": "smooth_ap",
    "SoftTripleLoss": "softtriple",
    "SphereFaceLoss": "sphereface",
    "SubCenterArcFaceLoss": "subcenter_arcface",
    "SupConLoss": "supcon",
    "ThresholdConsistentMarginLoss": "tcm",
    "TripletMarginLoss": "triplet",
    "TupletMarginLoss": "tuplet_margin",
}
PAPERS = {
    "infonce": "ntxent",
    "InfoNCE": "ntxent",
    "info_nce": "ntxent",
    "info_nce_loss": "ntxent",
    "NT-Xent": "ntxent",
    "AM-Softmax": "cosface",
    "A-Softmax": "sphereface",
    "FaceNet": "triplet_facenet",
    "Proxy-NCA": "proxy_nca",
    "ProxyNCA++": "proxy_nca_plus_plus",
    "CrossEntropyLoss": "softmax",
    "N. Softmax": "normalized_softmax",
    "triplet loss": "triplet",
    "BatchHardTripletLoss": "triplet_batch_hard",
    "RS@k": "recall_at_k_surrogate",
}


def message(function, *arguments, **options):
    with pytest.raises(EquimetricError) as error:
        function(*arguments, **options)
    return str(error.value)


@pytest.mark.parametrize(("theirs", "ours"), [*LOSSES_ELSEWHERE.items(), *PAPERS.items()])
def test_methods_of_other_libraries_and_papers(theirs, ours):
    ending = message(em.objective, theirs).partition("; ")[2]
    assert ending in (f"it is called {ours!r} here", f"did you mean {ours!r}?")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("BatchHardMiner", "'batch_hard'"),
        ("DistanceWeightedMiner", "'distance_weighted'"),
        ("MultiSimilarityMiner", "'multi_similarity'"),
        ("PairMarginMiner", "'pair_margin'"),
        ("TripletMarginMiner", "'violating' or 'hard' or 'semihard'"),
        ("BatchEasyHardMiner", "'easy_positive_hard_negative'"),
    ],
)
def test_miners_are_selections(theirs, ours):
    assert ours in message(em.objective, "triplet", selection=theirs)
    if theirs != "MultiSimilarityMiner":
        assert f"it is a selection here: give a method selection={ours}" in message(em.objective, theirs)


def test_a_miner_that_a_method_is_named_after_is_that_method():
    assert message(em.objective, "MultiSimilarityMiner").endswith("did you mean 'multi_similarity_miner'?")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("CosineSimilarity", "cosine"), ("DotProductSimilarity", "dot"), ("LpDistance", "euclidean")],
)
def test_distances_are_geometries(theirs, ours):
    assert repr(ours) in message(em.objective, "triplet", geometry=theirs)
    assert f"it is a geometry here: give a method geometry={ours!r}" in message(em.objective, theirs)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("AvgNonZeroReducer", "nonzero"), ("MeanReducer", "mean"), ("SumReducer", "sum"), ("DoNothingReducer", "none")],
)
def test_reducers_are_reductions(theirs, ours):
    for method in ("triplet", "contrastive"):
        advice = message(em.objective, method, reduction=theirs).rpartition("; ")[2]
        assert advice in (f"it is called {ours!r} here", f"did you mean {ours!r}?")
    assert message(em.objective, "triplet", reduction="maen").endswith("got 'maen'; did you mean 'mean'?")


def test_samplers_are_batches():
    assert message(BATCHES.find, "MPerClassSampler").endswith("it is called 'class_balanced' here")
    assert message(REFERENCES.find, "CrossBatchMemory").endswith("it is called 'memory' here")


@pytest.mark.parametrize(
    ("method", "theirs", "ours"),
    [
        ("triplet", "miner", "selection"),
        ("contrastive", "distance", "geometry"),
        ("triplet", "reducer", "reduction"),
        ("arcface", "s", "scale"),
        ("arcface", "m", "margin_rad"),
        ("arcface", "margin", "margin_rad"),
        ("cosface", "m", "margin"),
        ("softtriple", "m", "delta"),
        ("contrastive", "margin", "neg_margin"),
        ("ntxent", "temp", "temperature"),
        ("ntxent", "tau", "temperature"),
        ("arcface", "num_classes", "classes"),
        ("arcface", "embedding_size", "dim"),
        ("softtriple", "centers_per_class", "per_class"),
        ("xbm", "memory_size", "size"),
        ("angular", "alpha", "alpha_deg"),
        ("contrastive+tcm", "miner", "selection"),
    ],
)
def test_options_of_other_libraries(method, theirs, ours):
    assert message(em.objective, method, **{theirs: 0.5}).endswith(f"it is called {ours!r} here")


@pytest.mark.parametrize("theirs", ["MultipleLosses", "SelfSupervisedLoss", "GenericPairLoss"])
def test_what_is_no_class_here_has_a_remedy(theirs):
    assert message(em.objective, theirs).startswith(f"there is no method {theirs!r}; ")


def test_keys_of_a_configuration():
    assert "'optimizer.learning_rate'; it is called 'lr' here" in message(
        load_config, {"optimizer": {"learning_rate": 1.0}}, RunConfig
    )
    assert "'model.embedding_size'; it is called 'dim' here" in message(
        load_config, {"model": {"embedding_size": 64}}, RunConfig
    )


def test_the_command_line_says_what_a_method_is_called_here():
    command = [sys.executable, "-m", "equimetric", "methods", "TripletMarginLoss"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr == "equimetric: unknown method 'TripletMarginLoss'; it is called 'triplet' here\n"


def test_the_command_line_shows_the_names_elsewhere():
    command = [sys.executable, "-m", "equimetric", "methods", "triplet"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Elsewhere: TripletMarginLoss" in shown


def test_at_most_five_names_are_listed():
    assert len(recipes()) > 60
    listed = message(em.objective, "zzz").partition("e.g. ")[2].split(", ")
    assert len(listed) == 5
    assert set(listed) <= set(recipes())
    assert did_you_mean("zzz", ["one", "two"]) == "valid names: one, two"
    assert did_you_mean("zzz", {"two", "one"}) == "valid names: one, two"
    assert did_you_mean("zzz", []) == "there are none to choose from"


def test_the_options_of_the_loss_are_listed_first():
    assert "e.g. pos_margin, neg_margin, reduction, power" in message(em.objective, "contrastive", xyzzy=1)
    assert "e.g. margin, soft, swap, reduction" in message(em.objective, "triplet", blah=3)


@pytest.mark.parametrize("method", ["contrastive", "triplet", "lifted_generalized", "proxy_triplet"])
def test_distance_is_called_geometry_by_every_method(method):
    assert message(em.objective, method, distance="cosine").endswith("it is called 'geometry' here")


def test_a_misspelt_name_of_ours_is_not_taken_for_another():
    assert did_you_mean("margn", ["margin", "margin_rad"]) == "did you mean 'margin'?"
    assert did_you_mean("Margin", ["margin", "margin_rad"]) == "did you mean 'margin'?"


def names_elsewhere():
    """Every name of the tables: where it is looked up as an attribute, the name, and what it leads to."""
    rows = [(em.losses, theirs, name) for name, names in method_names_elsewhere(recipes()).items() for theirs in names]
    for namespace, registry in ((em.selections, SELECTIONS), (em.references, REFERENCES), (em.batches, BATCHES)):
        rows += [(namespace, theirs, name) for name, names in registry.known_as.items() for theirs in names]
    return rows


@pytest.mark.parametrize(("namespace", "theirs", "name"), names_elsewhere())
def test_every_name_elsewhere_is_suggested_by_constructors_too(namespace, theirs, name):
    """As `em.losses.InfoNCE`: `em.objective` knew the names, attributes were compared by letters alone."""
    if hasattr(namespace, theirs):
        return  # the title of a method may be its name
    with pytest.raises(AttributeError) as error:
        getattr(namespace, theirs)
    ending = str(error.value).partition("; ")[2]
    assert repr(name) in ending
    assert ending.startswith(("it is called ", "did you mean "))


@pytest.mark.parametrize("spelling", ["info_nce", "infonce", "InfoNCE", "info-nce", "InfoNCELoss"])
def test_info_nce_is_ntxent_wherever_it_is_written(spelling):
    for lookup in (em.objective, lambda name: em.objective(f"{name}+tcm"), lambda name: em.objective(f"0.5*{name}")):
        assert "it is called 'ntxent' here" in message(lookup, spelling)
    with pytest.raises(AttributeError, match="it is called 'ntxent' here"):
        getattr(em.losses, spelling)


def test_no_name_elsewhere_is_one_of_ours():
    """It would be found, and no error would suggest the other."""
    ours = {simplify(name) for name in recipes()}
    for registry in (LOSSES, SELECTIONS, REFERENCES, BATCHES):
        own = {simplify(name) for name in registry}
        for name, elsewhere in registry.known_as.items():
            assert not own & set(map(simplify, elsewhere)), name
            assert registry is not LOSSES or not ours & set(map(simplify, elsewhere)), name
            assert all(name in translate_name(theirs, registry, registry.known_as) for theirs in elsewhere)
    assert all(translate_name(theirs, meant) for theirs, meant in AMBIGUOUS_NAMES.items())
