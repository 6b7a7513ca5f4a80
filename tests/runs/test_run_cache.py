"""What runs of one process share is made once, is never stale, and changes no number."""

import os
import time
from itertools import count

import numpy as np
import pytest
import torch
from PIL import Image
from run_cases import draw_image

from equimetric import load
from equimetric.backbones import build_backbone, heads
from equimetric.configuration import load_config
from equimetric.errors import DamagedFileError, EquimetricError
from equimetric.runs import run_cache
from equimetric.runs.building import build_learner
from equimetric.runs.configuration import RunConfig
from equimetric.runs.evaluation import embed_run
from equimetric.runs.model import load_weights
from equimetric.runs.result import DataShape
from equimetric.runs.run_cache import LRUCache, RunCache
from equimetric.training import preconditions, train

SHAPE = DataShape(channels=3, vectors=False, classes=6, images=40)


def parse(config, **overrides):
    return load_config(config, RunConfig, overrides)


def count_calls(monkeypatch, module, name):
    calls, function = [], getattr(module, name)

    def counted(*given, **options):
        calls.append(given)
        return function(*given, **options)

    monkeypatch.setattr(module, name, counted)
    return calls


def state_of(learner):
    return {name: tensor.clone() for name, tensor in learner.state_dict().items()}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_only_what_was_asked_for_last_is_kept():
    made = count()
    recent = LRUCache(2)
    first = recent.get("a", lambda: next(made))
    assert recent.get("a", lambda: next(made)) == first
    recent.get("b", lambda: next(made))
    recent.get("a", lambda: next(made))
    recent.get("c", lambda: next(made))
    assert recent.find("b") is None
    assert recent.find("a") == first
    heavy = LRUCache(9, size_of=lambda value: value, max_bytes=10)
    for key in (6, 3, 5):
        heavy.get(key, lambda key=key: key)
    assert heavy.find(6) is None
    assert heavy.get(50, lambda: 50) == 50
    assert heavy.find(5) is None
    assert heavy.find(50) == 50, "the last one is kept however large it is"


def test_a_failed_check_is_made_again():
    cache, left = RunCache(), iter([True, False])

    def check():
        if next(left):
            raise EquimetricError("no")

    with pytest.raises(EquimetricError, match="no"):
        cache.check_once("a", check)
    cache.check_once("a", check)
    cache.check_once("a", lambda: pytest.fail("it was right before"))


@pytest.mark.parametrize(
    "kind",
    [
        "files, frozen",
        pytest.param("queries and gallery, frozen", marks=pytest.mark.slow),
        pytest.param("features", marks=pytest.mark.slow),
        pytest.param("files through a view", marks=pytest.mark.slow),
    ],
)
def test_runs_that_share_give_the_numbers_of_runs_that_do_not(kind, sources, tmp_path):
    cache = RunCache()
    changes = (
        {},
        {"method": "arcface", "training.precision": "float64"},
        {"model.head_init": "random"},
        {"data.fold": 1},
    )
    for number, change in enumerate(changes):
        one = train(sources[kind], folder=tmp_path / f"alone{number}", overrides=change)
        other = train(sources[kind], folder=tmp_path / f"shared{number}", overrides=change, cache=cache)
        assert one.metrics == other.metrics
        assert one.validation == other.validation
        assert equal(state_of(one.learner), state_of(other.learner))
        assert equal(state_of(load(tmp_path / f"shared{number}").learner), state_of(one.learner))


def test_data_features_and_checks_are_made_once(sources, tmp_path, monkeypatch):
    loaded = count_calls(monkeypatch, run_cache, "load_data_set")
    computed = count_calls(monkeypatch, run_cache, "cached_features")
    directions = count_calls(monkeypatch, heads, "principal_directions")
    tried = count_calls(monkeypatch, preconditions, "try_metrics")
    cache = RunCache()
    for number, change in enumerate(({}, {"method": "arcface"}, {"data.fold": 1}, {"data.fold": 1})):
        train(sources["files, frozen"], folder=tmp_path / str(number), overrides=change, cache=cache)
    assert len(loaded) == 1
    assert len(computed) == 1
    assert len(directions) == 2, "one for each fold"
    assert len(tried) == 4, "validation and test of each fold"


def test_a_changed_list_or_array_is_read_anew(sources, features, tmp_path):
    cache, config = RunCache(), parse(sources["features"])
    first = cache.data(config)
    assert cache.data(config) is first
    arrays = dict(np.load(features))
    np.savez(features, **{**arrays, "features": arrays["features"] + 1})
    changed = cache.data(config)
    assert changed.fingerprint != first.fingerprint
    assert cache.data(config) is changed
    train(sources["features"], folder=tmp_path / "run", cache=cache)
    embed_run(tmp_path / "run")


def test_changed_images_are_read_anew_unless_features_stand_for_them(sources, image_folder):
    cache = RunCache()
    images, frozen = parse(sources["files through a view"]), parse(sources["files, frozen"])
    first = cache.data(images)
    assert cache.data(images) is first
    Image.fromarray(draw_image(3, 99)).save(image_folder / "class0" / "1.png")
    assert cache.data(frozen).dataset is first.dataset
    changed = cache.data(images)
    assert changed.fingerprint != first.fingerprint
    assert cache.data(images) is changed
    stamp = time.time() - 100
    os.utime(image_folder / "class1" / "1.png", (stamp, stamp))
    assert cache.data(images).fingerprint == changed.fingerprint, "the content is the same"


def test_folds_share_the_images_and_not_the_split(sources):
    cache = RunCache()
    first, second = (cache.data(parse(sources["features"], **{"data.fold": fold})) for fold in (0, 1))
    assert first.dataset is second.dataset
    assert not torch.equal(first.split.validation, second.split.validation)


def frozen(**changes):
    model = {"backbone": "small_cnn", "frozen": True, "dim": 4, "head_init": "random", **changes.pop("model", {})}
    return parse({"method": "contrastive", "model": model, **changes})


def test_a_frozen_backbone_is_built_once_and_the_head_is_drawn_as_after_it(tmp_path):
    torch.manual_seed(3)
    file = tmp_path / "weights.pt"
    torch.save(build_backbone("small_cnn", channels=3).state_dict(), file)
    cache = RunCache()
    first = build_learner(frozen(model={"pretrained": str(file)}), SHAPE, cache=cache)
    for seed in (0, 1, 2, 1):
        config = frozen(model={"pretrained": str(file)}, seed=seed)
        learner = build_learner(config, SHAPE, cache=cache)
        assert learner.network.backbone is first.network.backbone
        assert equal(state_of(learner), state_of(build_learner(config, SHAPE)))
    torch.save({name: tensor + 1 for name, tensor in torch.load(file).items()}, file)
    changed = build_learner(frozen(model={"pretrained": str(file)}), SHAPE, cache=cache)
    assert changed.network.backbone is not first.network.backbone
    assert equal(state_of(changed), state_of(build_learner(frozen(model={"pretrained": str(file)}), SHAPE)))


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"model": {"pooling": "max"}},
        {"model": {"frozen": False}},
        {"training": {"precision": "float64"}},
        {"training": {"channels_last": True}},
    ],
)
def test_another_backbone_is_built_anew(other):
    cache = RunCache()
    first = build_learner(frozen(), SHAPE, cache=cache)
    learner = build_learner(frozen(**other), SHAPE, cache=cache)
    assert learner.network.backbone is not first.network.backbone
    assert equal(state_of(learner), state_of(build_learner(frozen(**other), SHAPE)))


def test_principal_directions_follow_a_change_of_the_features():
    features = torch.randn(30, 8)
    calls = []
    for number in range(3):
        head = torch.nn.Linear(8, 3)
        heads.init_head_by_pca(head, features)
        calls.append(head.weight.detach().clone())
        if number == 1:
            features[:10] += 5
    assert torch.equal(calls[0], calls[1])
    assert not torch.equal(calls[1], calls[2])
    narrow = torch.nn.Linear(8, 2)
    heads.init_head_by_pca(narrow, features)
    assert torch.equal(narrow.weight, calls[2][:2])


@pytest.fixture
def three_runs(sources, tmp_path):
    cache, folders = RunCache(), [tmp_path / "study" / str(seed) for seed in range(3)]
    config = {**sources["files, frozen"], "model": {"dim": 4, "frozen": True}}
    torch.manual_seed(0)
    file = tmp_path / "weights.pt"
    torch.save(build_backbone("small_cnn", channels=3).state_dict(), file)
    config["model"]["pretrained"] = str(file)
    for seed, folder in enumerate(folders):
        train(config, folder=folder, overrides={"seed": seed}, cache=cache)
    return folders, config, cache


def test_runs_hold_their_frozen_backbone_whole_and_the_disk_holds_it_once(three_runs):
    folders, _, _ = three_runs
    files = [folder / "backbone.safetensors" for folder in folders]
    assert len({file.stat().st_ino for file in files}) == 1
    expected = state_of(load(folders[2]).learner)
    # Each folder is enough by itself.
    for folder in folders[:2]:
        for file in folder.iterdir():
            file.unlink()
    assert equal(state_of(load(folders[2]).learner), expected)
    assert all("backbone" in name for name in load_weights(files[2]))
    assert not any("backbone" in name for name in load_weights(folders[2] / "model.safetensors"))


@pytest.mark.parametrize("why", ["gone", "changed", "no links"])
def test_a_backbone_that_cannot_be_linked_is_written_again(three_runs, tmp_path, monkeypatch, why):
    folders, config, cache = three_runs
    if why == "gone":
        for folder in folders:
            (folder / "backbone.safetensors").unlink()
    elif why == "changed":
        (folders[0] / "backbone.safetensors").write_bytes(b"changed")
    else:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("not here")))
    train(config, folder=tmp_path / "more", overrides={"seed": 7}, cache=cache)
    assert (tmp_path / "more" / "backbone.safetensors").stat().st_nlink == 1
    assert equal(state_of(load(tmp_path / "more").learner.network.backbone), backbone_of(config))


def backbone_of(config):
    return state_of(build_learner(parse(config), SHAPE).network.backbone)


def test_a_damaged_backbone_is_named(three_runs):
    folders, _, _ = three_runs
    file = folders[1] / "backbone.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(DamagedFileError, match=r"backbone\.safetensors is damaged .*; remove the run's folder"):
        load(folders[1])


def test_the_hash_of_the_weights_is_that_of_the_whole_model(three_runs, tmp_path, monkeypatch):
    """Certificates name it: a model with another backbone has another one, even where the head is the same."""
    from equimetric.runs.origin import weights_sha256
    from equimetric.training import completion

    folders, config, _ = three_runs
    train(config, folder=tmp_path / "same", overrides={"seed": 0})
    assert weights_sha256(tmp_path / "same") == weights_sha256(folders[0])
    save = completion.save
    monkeypatch.setattr(
        completion, "save", lambda tensors, *given: save({n: t + 0.0 for n, t in tensors.items()}, *given)
    )
    write = completion.RunFolder.write

    def another(run, name, content, **options):
        write(run, name, content + b" " if name == "backbone.safetensors" else content, **options)

    monkeypatch.setattr(completion.RunFolder, "write", another)
    train(config, folder=tmp_path / "other", overrides={"seed": 0})
    assert weights_sha256(tmp_path / "other") != weights_sha256(folders[0])
