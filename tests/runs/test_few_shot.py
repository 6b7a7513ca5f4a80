"""Few-shot adaptation of finished runs."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from run_cases import configuration
from scipy import stats

import equimetric as em
from equimetric.data.episodes import draw_support, episode_seed
from equimetric.runs import few_shot
from equimetric.runs.access_log import read_test_accesses
from equimetric.runs.evaluation import evaluate_part, open_run
from equimetric.runs.few_shot import HeadAdapter, adapt
from equimetric.runs.few_shot_result import Adaptation, ShotResult
from equimetric.training import train

QUICK = Adaptation(steps=3)


@pytest.fixture
def space(tmp_path):
    """Sixteen classes of ten vectors whose classes lie in a few of twenty dimensions."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(16), 10)
    vectors = 2.5 * generator.normal(size=(160, 20))
    vectors[:, :6] += 4 * generator.normal(size=(16, 6))[labels]
    np.savez(tmp_path / "space.npz", features=vectors.astype(np.float32), labels=labels)
    return configuration({"name": "features", "options": {"file": str(tmp_path / "space.npz")}}, model={"dim": 6})


def test_a_few_images_help(space, tmp_path):
    train(space, folder=tmp_path / "run")
    result = adapt(tmp_path / "run", shots=(2, 6), episodes=3, adaptation=Adaptation(lr=3e-3, steps=100))
    assert result[6].gain("map@r").mean > 0.05
    assert result[6].gain("map@r").mean > result[2].gain("map@r").mean
    assert (result[2].shown, result[6].shown) == (16, 48)
    assert result.uses_test_labels
    assert result.kind == "adaptation"
    assert "no zero-shot result" in str(result)


def test_episodes_are_those_of_the_data_and_every_one_starts_from_the_run(space, tmp_path):
    train(space, folder=tmp_path / "run")
    train({**space, "method": "triplet", "seed": 4}, folder=tmp_path / "other")
    weights = (tmp_path / "run" / "model.safetensors").read_bytes()
    first, again = (adapt(tmp_path / "run", shots=(2,), episodes=2, adaptation=QUICK) for _ in range(2))
    assert first.to_dict() == again.to_dict()
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == weights
    later = adapt(tmp_path / "run", shots=(5, 2), episodes=2, adaptation=QUICK)
    assert later[2].few_shot == first[2].few_shot, "what was adapted before leaves no trace"
    runs = [open_run(tmp_path / name) for name in ("run", "other")]
    supports = [HeadAdapter(run, QUICK).support(2, 1) for run in runs]
    assert torch.equal(*supports)
    data = runs[0].data
    rows = data.rows("test")
    expected = draw_support(data.dataset.labels[rows], 2, episode_seed(data.dataset, rows, 1))
    assert torch.equal(supports[0], expected)


def test_zero_shot_is_the_run_on_the_images_that_are_not_shown(space, tmp_path):
    train(space, folder=tmp_path / "run")
    result = adapt(tmp_path / "run", shots=(3,), episodes=2, adaptation=QUICK)
    run = open_run(tmp_path / "run")
    found = run.embed()
    for episode in range(2):
        kept = torch.ones(len(found.labels), dtype=torch.bool)
        kept[HeadAdapter(run, QUICK).support(3, episode)] = False
        expected = em.evaluate(found.embeddings[kept], found.labels[kept], metrics=run.config.evaluation.names())
        assert {name: values[episode] for name, values in result[3].zero_shot.items()} == dict(expected)


def test_only_the_head_learns(sources, tmp_path):
    train(sources["files through a view"], folder=tmp_path / "run")
    adapter = HeadAdapter(open_run(tmp_path / "run"), QUICK)
    before = {name: value.clone() for name, value in adapter.learner.state_dict().items()}
    adapter.train_head(adapter.support(2, 0), seed=0)
    changed = {name for name, value in adapter.learner.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"network.head.weight", "network.head.bias"}


@pytest.mark.parametrize("kind", ["files through a view", "files, frozen", "queries and gallery, frozen"])
def test_features_give_what_images_give(kind, sources, tmp_path, monkeypatch):
    train(sources[kind], folder=tmp_path / "run")
    by_features = adapt(tmp_path / "run", shots=(2,), episodes=1, adaptation=QUICK)
    monkeypatch.setattr(few_shot, "head_inputs", lambda learner, images: images)
    run = open_run(tmp_path / "run")
    monkeypatch.setattr(few_shot, "open_run", lambda folder: replace(run))
    monkeypatch.setattr(type(run), "eval_data", property(lambda self: self.data))
    by_images = adapt(tmp_path / "run", shots=(2,), episodes=1, adaptation=QUICK)
    assert by_features[2].few_shot["map@r"] == pytest.approx(by_images[2].few_shot["map@r"], abs=0.02)
    assert by_features[2].zero_shot["map@r"] == pytest.approx(by_images[2].zero_shot["map@r"], abs=0.02)


def test_a_gallery_is_shown_and_queries_are_not(sources, tmp_path):
    train(sources["queries and gallery"], folder=tmp_path / "run")
    adapter = HeadAdapter(open_run(tmp_path / "run"), QUICK)
    support = adapter.support(5, 0)
    assert set(support.tolist()) < set(adapter.embedded.gallery.tolist())
    assert len(support) == 8 * 3  # four images of each class in the gallery, one of which stays
    result = adapt(tmp_path / "run", shots=(5,), episodes=1, adaptation=QUICK)
    assert 0 <= result[5].few_shot["map@r"][0] <= 1
    others = adapter.embedded.select(torch.arange(10, 48))
    positions = adapter.embedded.gallery[adapter.embedded.gallery >= 10]
    assert torch.equal(others.rows[others.gallery], adapter.embedded.rows[positions])
    assert evaluate_part(others, adapter.run.config.evaluation)["map@r"] >= 0


@pytest.mark.parametrize(("objective", "options"), [("arcface", {"scale": 8.0}), ("contrastive+0.5*triplet", {})])
def test_any_objective_by_name(objective, options, space, tmp_path):
    train(space, folder=tmp_path / "run")
    how = Adaptation(objective, options, steps=5)
    result = adapt(tmp_path / "run", shots=(2,), episodes=1, adaptation=how)
    assert result.to_dict()["objective"] == objective
    assert result.to_dict()["options"] == options


def test_the_untrained_start_can_be_adapted_and_raw_features_cannot(space, tmp_path):
    for name in ("untrained", "raw_features"):
        train({**space, "learner": {"name": name}, "method": name}, folder=tmp_path / name)
    assert adapt(tmp_path / "untrained", shots=(2,), episodes=1, adaptation=QUICK).by_shots
    with pytest.raises(em.EquimetricError, match="has no head to adapt"):
        adapt(tmp_path / "raw_features", shots=(2,), episodes=1, adaptation=QUICK)


def test_intervals_are_over_episodes():
    result = ShotResult(2, 80, {"map@r": (0.4, 0.5, 0.6)}, {"map@r": (0.5, 0.65, 0.7)})
    assert result.gain("map@r").mean == pytest.approx(0.35 / 3)
    expected = stats.t.ppf(0.975, 2) * stats.sem([0.1, 0.15, 0.1])
    assert result.gain("map@r").half_width == pytest.approx(expected)
    assert result.before("map@r").half_width == pytest.approx(stats.t.ppf(0.975, 2) * 0.1 / 3**0.5)


def test_wrong_wishes(space, tmp_path):
    train(space, folder=tmp_path / "run")
    with pytest.raises(em.EquimetricError, match="adaptation by 'arcface' diverged with lr = 1; lower it"):
        adapt(tmp_path / "run", shots=(2,), episodes=1, adaptation=Adaptation("arcface", {"scale": 1e39}, lr=1.0))
    with pytest.raises(em.EquimetricError, match="0 episodes of 1 numbers of shots"):
        adapt(tmp_path / "run", shots=(2,), episodes=0)
    for options, message in (({"steps": 0}, "steps is 0"), ({"lr": 0.0}, "give a learning rate above 0, at most 1")):
        with pytest.raises(em.EquimetricError, match=message):
            Adaptation(**options)


def test_the_command(space, tmp_path, equimetric):
    train(space, folder=tmp_path / "run")
    words = ("fewshot", tmp_path / "run", "--shots", "2,4", "--episodes", "2", "--steps", "3")
    code, out, err = equimetric(*words)
    assert code == 0, err
    assert "4 images of every class shown" in out
    assert "no zero-shot result" in out
    code, out, _ = equimetric(*words, "--objective", "contrastive", "--neg_margin", "0.5", "--json")
    printed = json.loads(out)
    assert printed["kind"] == "adaptation"
    assert printed["uses_test_labels"] is True
    assert printed["options"] == {"neg_margin": 0.5}
    assert len(printed["shots"]["2"]["metrics"]["map@r"]["few_shot"]["values"]) == 2
    assert [access.command for access in read_test_accesses(tmp_path / "run")] == ["train", "fewshot", "fewshot"]
    code, _, err = equimetric(*words[:2], "--shots", "two")
    assert code == 2
    assert "--shots takes whole numbers" in err


def test_an_episode_that_has_ended_is_not_computed_again(space, tmp_path, monkeypatch):
    """After a kill the same command goes on; nothing is shared between adaptations, or with other weights."""
    train(space, folder=tmp_path / "run")
    whole = adapt(tmp_path / "run", shots=(2, 5), episodes=2, adaptation=QUICK).to_dict()
    log = tmp_path / "run" / few_shot.EPISODE_LOG
    lines = log.read_text().splitlines(keepends=True)
    assert len(lines) == 4
    log.write_text("".join(lines[:2]) + lines[2][:30])  # killed while it wrote
    computed = []
    run_episode = HeadAdapter.run_episode

    def counted(self, shots, episode, *rest):
        computed.append((shots, episode))
        return run_episode(self, shots, episode, *rest)

    monkeypatch.setattr(HeadAdapter, "run_episode", counted)
    assert adapt(tmp_path / "run", shots=(2, 5), episodes=2, adaptation=QUICK).to_dict() == whole
    assert computed == [(5, 0), (5, 1)]
    adapt(tmp_path / "run", shots=(2,), episodes=1, adaptation=Adaptation(steps=4))
    assert computed[2:] == [(2, 0)]
    train({**space, "seed": 5}, folder=tmp_path / "other")
    (tmp_path / "other" / few_shot.EPISODE_LOG).write_bytes(log.read_bytes())
    adapt(tmp_path / "other", shots=(2,), episodes=1, adaptation=QUICK)
    assert computed[3:] == [(2, 0)]


def test_a_stop_loses_no_episode_that_has_ended(space, tmp_path, monkeypatch):
    train(space, folder=tmp_path / "run")
    run_episode = HeadAdapter.run_episode

    def stopped(self, shots, episode, *rest):
        if episode == 1:
            raise KeyboardInterrupt
        return run_episode(self, shots, episode, *rest)

    monkeypatch.setattr(HeadAdapter, "run_episode", stopped)
    with pytest.raises(KeyboardInterrupt):
        adapt(tmp_path / "run", shots=(2,), episodes=2, adaptation=QUICK)
    (line,) = (tmp_path / "run" / few_shot.EPISODE_LOG).read_text().splitlines()
    assert {name: json.loads(line)[name] for name in ("shots", "episode")} == {"shots": 2, "episode": 0}


def test_progress_counts_the_updates(space, tmp_path):
    train(space, folder=tmp_path / "run")
    seen = []
    adapt(
        tmp_path / "run", shots=(2,), episodes=2, adaptation=Adaptation(steps=100), progress=lambda *at: seen.append(at)
    )
    assert seen == [(0, 200), (50, 200), (100, 200), (100, 200), (150, 200), (200, 200)]
