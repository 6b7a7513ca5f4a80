"""Comparisons made elsewhere, described in a file."""

import pytest

from equimetric.errors import EquimetricError
from equimetric.studies.ledger import audit_description, example_names, load_example
from equimetric.studies.ledger.text import ledger_to_markdown

FAIR = {
    "title": "Ours against theirs",
    "metrics": ["map@r"],
    "common": {
        "data": "CUB-200-2011",
        "backbone": "ResNet-50",
        "pretrained": "ImageNet",
        "dim": 64,
        "transform": "random resized crop",
        "optimizer": "Adam",
        "frozen_batch_norm": True,
        "batch_size": 32,
        "normalized": True,
        "steps": 1000,
        "trials": 50,
        "repetitions": 10,
        "intervals": True,
        "selected_on": "validation classes",
        "disjoint_classes": True,
        "near_duplicates": 0,
    },
    "methods": {"ours": {}, "theirs": {}, "baseline": {}},
}


def changed(**settings):
    return {**FAIR, "methods": {**FAIR["methods"], "ours": settings}}


def test_a_fair_comparison():
    ledger = audit_description(FAIR)
    assert ledger.verdict == "fair"
    assert {entry.status for entry in ledger.entries} == {"equal", "met"}
    assert ledger["budget"].finding == "budget 1,000 steps"
    assert ledger["intervals"].finding == "intervals over 10 runs"


@pytest.mark.parametrize(
    ("settings", "factor", "finding"),
    [
        ({"backbone": "ViT-B/16"}, "architecture", "backbone is ResNet-50 for theirs, baseline; ViT-B/16 for ours"),
        ({"pretrained": "ImageNet-21k"}, "architecture", "pretrained is ImageNet for theirs"),
        ({"networks": 12}, "architecture", "networks is 1 for theirs, baseline; 12 for ours"),
        ({"dim": 512}, "dimension", "dim is 64 for theirs, baseline; 512 for ours"),
        ({"bits": 1}, "dimension", "dim is 64 for theirs, baseline; 64 signs for ours"),
        ({"transform": "crop"}, "augmentation", "transform is random resized crop for theirs, baseline; crop for ours"),
        ({"optimizer": "AdamW"}, "optimizer", "optimizer is Adam for theirs, baseline; AdamW for ours"),
        ({"frozen_batch_norm": False}, "batch_norm", "frozen_batch_norm is true for theirs, baseline; false for ours"),
        ({"intervals": False}, "intervals", "no intervals for ours"),
        ({"repetitions": 1}, "intervals", "no intervals for ours"),
        ({"data": "Cars-196"}, "data", "data is CUB-200-2011 for theirs, baseline; Cars-196 for ours"),
        ({"batch_size": 256}, "batch", "batch_size is 32 for theirs, baseline; 256 for ours"),
        ({"normalized": False}, "normalization", "normalized is true for theirs, baseline; false for ours"),
        ({"steps": 9000}, "budget", "budget is 1,000 steps for theirs, baseline; 9,000 steps for ours"),
        ({"trials": 500}, "tuning", "trials is 50 for theirs, baseline; 500 for ours"),
        ({"selected_on": "test classes"}, "selection", "selected on test classes for ours"),
        ({"disjoint_classes": False}, "classes", "classes in two parts for ours"),
        ({"near_duplicates": 7}, "near_duplicates", "7 images in two parts for ours"),
    ],
)
def test_every_fault_is_found(settings, factor, finding):
    ledger = audit_description(changed(**settings))
    (fault,) = ledger.faults
    assert (fault.factor, fault.methods) == (factor, ("ours",))
    assert fault.finding.startswith(finding)
    assert ledger.verdict == "not fair"
    assert fault.line.wrong in ledger.sentence


def test_equal_bits_are_equal():
    ledger = audit_description(changed(dim=2048, bits=1))
    assert ledger.verdict == "fair"
    assert ledger["dimension"].finding == "dim 64 or 2,048 signs, equal bits"
    assert audit_description(changed(dim=128, bits=16)).verdict == "fair"


@pytest.mark.parametrize("unstated", [{"optimizer": "not stated"}, {"near_duplicates": "not stated"}])
def test_what_is_not_stated_is_not_shown_to_be_fair(unstated):
    ledger = audit_description(changed(**unstated))
    (entry,) = ledger.unstated
    assert ledger.verdict == "not shown to be fair"
    assert ledger.sentence == f"Not shown to be fair: not stated: {entry.line.noun}."
    assert entry.methods == ("ours",)
    (key,) = unstated
    assert key in entry.finding


def test_optional_settings_are_compared_once_somebody_states_them():
    assert audit_description(changed(lr=1e-3))["optimizer"].status == "not stated"
    rates = {name: {"lr": rate} for name, rate in {"ours": 1e-3, "theirs": 1e-5, "baseline": 1e-5}.items()}
    ledger = audit_description({**FAIR, "methods": rates})
    assert ledger["optimizer"].finding == "lr is 1e-05 for theirs, baseline; 0.001 for ours"
    assert audit_description({**FAIR, "methods": rates, "varies": ["lr"]})["optimizer"].status == "declared"


def test_declared_and_waived_differences_are_fair():
    described = {**changed(batch_shape="32×1", dim=128), "varies": ["batch"], "waivers": {"dimension": "two sizes"}}
    described["common"] = {**FAIR["common"], "batch_shape": "8×4"}
    ledger = audit_description(described)
    assert ledger.sentence == (
        "Fair but for what is waived (embedding dimension): no other cause of unfair comparison was found; "
        "declared to vary: batch."
    )
    assert "Waived: embedding dimension" in ledger.footnotes()[0]
    assert "Declared to vary: batch (batch_shape is 8×4 for theirs, baseline; 32×1 for ours)." in ledger.footnotes()
    assert "→ accepted: two sizes" in ledger_to_markdown(ledger)


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({**FAIR, "methods": {"ours": {}}}, "methods has 1 entry; give at least 2"),
        (changed(backbones="x"), "unknown key 'methods.ours.backbones'; did you mean 'backbone'"),
        (changed(dim=-3), "methods.ours.dim"),
        (changed(selected_on="the test set"), "methods.ours.selected_on"),
        ({**FAIR, "varies": ["dimensions"]}, "varies: unknown name in varies 'dimensions'; did you mean 'dimension'"),
        ({**FAIR, "seeds": [0]}, "a study is checked by `equimetric compare` before its first step"),
        ({**FAIR, "waivers": {"colour": "x"}}, "unknown factor in \\[waivers\\] 'colour'"),
    ],
)
def test_mistakes_are_one_sentence(described, message):
    with pytest.raises(EquimetricError, match=message):
        audit_description(described)


def test_the_first_table_of_the_unbiased_evaluation():
    ledger = audit_description(load_example("unbiased-table-1"))
    assert ledger.sentence.startswith(
        "Not fair: 3 of 6 causes of unfair comparison (architecture, embedding dimension, missing intervals); "
        "also: normalisation; not stated: augmentation, optimiser, batch normalisation,"
    )
    assert ledger["dimension"].methods == (
        *("Margin Loss", "Angular Loss", "Prototype Loss"),
        *("Proxy-Softmax", "Ranked List Loss", "DREML"),
    )
    assert "ResNet-50 for Margin Loss" in ledger["architecture"].finding
    assert ledger.notes[0] == "Reported recall@1: from 42.6 (Triplet Semihard) to 63.6 (Margin Loss)."


def test_the_cells_of_the_first_table():
    """Backbone, dimension, normalised last layer and reported Recall@1, as printed."""
    cells = {
        "Triplet Semihard": ("GoogLeNet", 64, False, 42.6),
        "Lifted Struct": ("GoogLeNet", 64, False, 43.6),
        "N-Pairs": ("GoogLeNet", 64, False, 45.4),
        "Struct Clust": ("Inception-BN", 64, True, 48.2),
        "Margin Loss": ("ResNet-50", 128, True, 63.6),
        "Angular Loss": ("GoogLeNet", 512, False, 53.6),
        "Prototype Loss": ("GoogLeNet", 1024, False, None),
        "Proxy-Triplet": ("Inception-BN", 64, True, None),
        "Proxy-NCA": ("Inception-BN", 64, True, 49.2),
        "Proxy-Softmax": ("Inception-BN", 512, True, 55.3),
        "Ranked List Loss": ("Inception-BN", 512, True, 57.4),
        "DREML": ("GoogLeNet", 12 * 48, False, 58.9),
    }
    methods = load_example("unbiased-table-1").settings()
    assert cells == {
        name: (own.backbone, own.dim, own.normalized, own.reported.get("recall@1")) for name, own in methods.items()
    }


def test_the_unbiased_evaluation_has_equal_bits_and_test_feedback():
    ledger = audit_description(load_example("unbiased-table-3"))
    assert ledger["dimension"].methods == ledger["architecture"].methods == ("DREML",)
    assert "64 or 2,048 signs, equal bits" in ledger["dimension"].finding
    assert ledger["optimizer"].methods == ("Struct Clust",)
    assert ledger["selection"].finding == "selected on test classes"
    assert ledger["normalization"].status == "declared"


def test_the_shipped_examples():
    assert example_names() == ["unbiased-table-1", "unbiased-table-3"]
    with pytest.raises(EquimetricError, match="unknown example of a comparison 'unbiased-table-2'"):
        load_example("unbiased-table-2")
