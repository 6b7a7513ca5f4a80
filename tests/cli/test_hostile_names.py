"""Names from data reach the terminal as text, in every command: no escapes, no markup, no line breaks."""

import json
import unicodedata

import numpy as np
import pytest
from PIL import Image

NAME = "o[bold]z\x1b[31m\x07\nequimetric: all is well\t\u202egnp"
"""Markup, a colour, a bell, a line that looks like ours, a tab, and text that is shown backwards."""

TEXT = f"o[/]{NAME}"
"""What no file can be called: markup that ends where none has begun."""


@pytest.fixture
def is_harmless():
    def check(text):
        lines = text.splitlines()
        reordering = {"RLO", "LRO", "RLE", "LRE", "PDF", "RLI", "LRI", "FSI", "PDI"}
        return (
            all(unicodedata.category(one) != "Cc" for line in lines for one in line)
            and not any(unicodedata.bidirectional(one) in reordering for one in text)
            and not any(line.startswith("equimetric: all is well") for line in lines)
        )

    return check


@pytest.fixture
def place(tmp_path):
    """A folder of a hostile name, as far as a file system takes one."""
    folder = tmp_path / NAME
    folder.mkdir()
    return folder


def space_of(folder, array="embeddings"):
    generator = np.random.default_rng(0)
    labels = np.repeat(np.array([f"{TEXT}{number}" for number in range(12)]), 6)
    vectors = np.repeat(generator.normal(size=(12, 4)), 6, axis=0) + 0.8 * generator.normal(size=(72, 4))
    np.savez(folder / "space.npz", **{array: vectors.astype(np.float32)}, labels=labels)
    return folder / "space.npz"


def space_with_a_close_class(folder):
    """The first class lies in the middle of the others, so that a calibration names it."""
    numbers = np.repeat(np.arange(24), 10)
    vectors = np.eye(24)[numbers] * (numbers > 0)[:, None] + 0.15
    vectors += 0.1 * np.random.default_rng(0).normal(size=vectors.shape)
    labels = np.array([f"{TEXT}{number}" for number in numbers])
    np.savez(folder / "close.npz", embeddings=vectors.astype(np.float32), labels=labels)
    return folder / "close.npz"


def test_the_check_sees_harm(is_harmless):
    assert not is_harmless(TEXT)
    assert not is_harmless("\x1b[31mred")
    assert not is_harmless("\u202egnp")
    assert not is_harmless("x\nequimetric: all is well")
    assert is_harmless("o[bold]z\ntwo lines")


def test_evaluate_and_calibrate(equimetric, is_harmless, place):
    space = space_of(place)
    for arguments in (
        ("calibrate", space, "--far", "0.05", "--out", place / "out.json"),
        ("evaluate", space, "--compare", space, "--plots", place / "plots"),
        ("evaluate", place / "missing.npz"),
        ("evaluate", space, "--metrics", TEXT),
        ("evaluate", space, "--geometry", TEXT),
        ("evaluate", space, "-m", "opis", "--class-thresholds", "0.05"),
        ("evaluate", space, "--class-thresholds", TEXT),
    ):
        _, out, err = equimetric(*arguments)
        assert is_harmless(out + err), (arguments, out, err)
        assert "[bold]" in out + err
    code, out, err = equimetric("calibrate", space_with_a_close_class(place), "--far", "0.05")
    assert code == 0, err
    assert "of them with 95% confidence: o[/]o[bold]z\N{REPLACEMENT CHARACTER}[31m" in out


def test_look_up(equimetric, is_harmless, place):
    for arguments in (
        ("methods", TEXT),
        ("methods", "--family", TEXT),
        ("backbones", TEXT),
        ("datasets", "check", TEXT),
        ("explain", TEXT),
        ("explain", "triplet", "--out", place / "weights.png"),
        ("explain", "triplet", "--out", place / f"weights.{NAME}"),
        ("train", place / "missing.toml"),
        ("report", place),
        (TEXT,),
    ):
        _, out, err = equimetric(*arguments)
        assert is_harmless(out + err), (arguments, out, err)
        assert "[bold]" in out + err, arguments


def test_files_of_a_data_set(equimetric, is_harmless, tmp_path):
    for label in range(8):
        folder = tmp_path / "images" / f"{NAME}{label}"
        folder.mkdir(parents=True)
        for number in range(3):
            pixels = np.random.default_rng((label, number)).integers(256, size=(4, 4, 3), dtype=np.uint8)
            Image.fromarray(pixels).resize((32, 32)).save(folder / f"{NAME}{number}.png")
    first = next((tmp_path / "images").glob("*0"))
    (first / f"copy{NAME}.png").write_bytes((next((tmp_path / "images").glob("*7")) / f"{NAME}0.png").read_bytes())
    (first / f"damaged{NAME}.png").write_bytes(b"no image")
    code, out, err = equimetric("datasets", "check", tmp_path / "images")
    assert code == 1, err
    assert is_harmless(out + err), out + err
    assert "damaged: " in out
    assert "equal" in out
    assert len(out.splitlines()) == 3
    config = tmp_path / "run.toml"
    config.write_text('method = "contrastive"\ndata.name = "folder"\n')
    _, out, err = equimetric(
        "train", config, "--data.options.root", tmp_path / "images", "--data.options.damaged", "refuse"
    )
    assert is_harmless(out + err)
    assert "[bold]" in err


STUDY = """
name = "small"
title = TITLE
seeds = [0]
workers = 1
baselines = []
data = { name = "features" }
model.dim = 4
batch = { classes = 2, samples = 2 }
training = { steps = 2, validate_every = 1 }
methods.contrastive = {}
methods.bad = { method = "proxy_nca", objective_lr = 1e38 }
optimizer.name = "sgd"
"""


def test_training_and_comparing(equimetric, in_process, is_harmless, place):
    space = space_of(place, "features")
    study = place / "study.toml"
    study.write_text(STUDY.replace("TITLE", json.dumps(TEXT.replace("\x07", ""))))
    data = ("--data.options.file", json.dumps(str(space)))
    code, out, err = equimetric("compare", study, "--output", place / "runs", *data)
    assert code in (0, 1), err
    assert is_harmless(out + err), (out, err)
    assert "o[/]o[bold]z" in out
    code, out, err = equimetric("report", place / "runs" / "small")
    assert code == 0, err
    assert is_harmless(out + err), (out, err)
    run = place / "run.toml"
    run.write_text('method = "contrastive"\ndata.name = "features"\nmodel.dim = 4\ntraining = { steps = 1 }\n')
    batch = ("--batch.classes", "2", "--batch.samples", "2")
    code, out, err = equimetric("train", run, "--folder", place / "one", *batch, *data)
    assert code == 0, err
    assert is_harmless(out + err), (out, err)
    assert "[bold]" in out
    code, out, err = equimetric("train", run, "--folder", place / "one", "--seed", "1", *batch, *data)
    assert code == 2
    assert is_harmless(out + err), (out, err)
    assert "[bold]" in err
    shift = ("datasets", "shift", "features", "--file", json.dumps(str(space)), "--out", place / "shift.json")
    code, out, err = equimetric(*shift, "--swaps", "1")
    assert code == 0, err
    assert is_harmless(out + err), (out, err)
