"""Unfair studies are refused before anything trains, with a message that names the cause and the remedy."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import equimetric as em
from equimetric.backbones import build_backbone
from equimetric.errors import EquimetricError

STUDY = {
    "name": "small",
    "seeds": [0],
    "data": {"name": "digits"},
    "model": {"dim": 4},
    "batch": {"classes": 2, "samples": 4},
    "training": {"steps": 4, "validate_every": 2, "log_every": 2},
    "methods": {"a": {"method": "contrastive"}, "b": {"method": "margin"}},
}


def refused(tmp_path, match, **changes):
    with pytest.raises(EquimetricError, match=match):
        em.compare({**STUDY, **changes}, output=tmp_path / "runs", engine="serial")
    assert not (tmp_path / "runs").exists()


def test_another_dimension(tmp_path):
    methods = {"a": {"method": "contrastive"}, "b": {"method": "margin", "conditions": {"model.dim": 8}}}
    refused(tmp_path, r"methods\.b changes 'model\.dim'.*declare that it varies", methods=methods)


def test_a_dimension_that_is_declared_is_printed_with_every_table(tmp_path):
    methods = {"a": {"method": "contrastive"}, "b": {"method": "margin", "conditions": {"model.dim": 8}}}
    study = {**STUDY, "methods": methods, "varies": ["model.dim"]}
    table = em.compare(study, output=tmp_path, engine="serial").table
    assert any("Declared to vary: embedding dimension" in note for note in table.footnotes)


def test_test_feedback(tmp_path):
    refused(tmp_path, "unknown key 'evaluation.part'", evaluation={"part": "test"})


def test_overlapping_classes(tmp_path):
    images = torch.randint(0, 255, (80, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels = np.repeat(np.arange(8), 10)
    split = np.where(labels < 5, "train", "test")
    split[3] = "test"
    np.savez(tmp_path / "data.npz", images=images.numpy(), labels=labels, split=split)
    data = {"name": "arrays", "options": {"file": str(tmp_path / "data.npz")}}
    refused(tmp_path, "is in train and in test", data=data)


def test_an_unequal_budget(tmp_path):
    methods = {"a": {"method": "contrastive"}, "b": {"method": "margin", "conditions": {"training.steps": 8}}}
    refused(tmp_path, r"changes 'training\.steps', because of which the comparison would be unfair", methods=methods)


def test_near_duplicates(tmp_path):
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(80, 1, 8, 8, generator=generator)
    images = (torch.nn.functional.interpolate(coarse, scale_factor=4, mode="bicubic").clamp(0, 1) * 255).to(torch.uint8)
    images[75] = images[2]
    labels = np.repeat(np.arange(8), 10)
    np.savez(tmp_path / "data.npz", images=images.numpy(), labels=labels)
    data = {"name": "arrays", "options": {"file": str(tmp_path / "data.npz")}}
    refused(tmp_path, r"unfair comparison: .*equal.*\[waivers\] near_duplicates = \"reason\"", data=data)
    waived = {**STUDY, "data": data, "waivers": {"near_duplicates": "kept on purpose"}}
    table = em.compare(waived, output=tmp_path / "runs", engine="serial").table
    assert any(note.startswith("Waived: ") and "kept on purpose" in note for note in table.footnotes)


def test_other_weights_of_the_backbone(tmp_path):
    for seed in (0, 1):
        torch.manual_seed(seed)
        state = build_backbone("small_cnn", channels=1).state_dict()
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, tmp_path / f"{seed}.safetensors")
    methods = {
        f"weights {seed}": {
            "method": "margin",
            "conditions": {"model.pretrained": str(tmp_path / f"{seed}.safetensors")},
        }
        for seed in (0, 1)
    }
    refused(tmp_path, r"changes 'model\.pretrained'", methods=methods)


def test_an_unequal_tuning_budget(tmp_path):
    methods = {
        "a": {"method": "contrastive", "search": {"pos_margin": {"choice": [0.0, 0.1]}}},
        "b": {"method": "margin", "search": {"alpha": {"uniform": [0.0, 1.0]}}},
    }
    refused(
        tmp_path,
        "unfair comparison: tuning budget .*waivers",
        methods=methods,
        search={"trials": 4, "kind": "random"},
        seeds=[0, 1],
    )
