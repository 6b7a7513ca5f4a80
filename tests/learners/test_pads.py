"""PADS: rewards of held-out classes, the policy that learns from them, and the distribution it adapts."""

import copy
import json
from itertools import pairwise

import pytest
import torch
from making import VECTORS, configuration, make, make_batch, require_training_only
from rounding import assert_same_digits
from several_tasks import note_batches

from equimetric.errors import EquimetricError, EquimetricWarning
from equimetric.learners import EpochView
from equimetric.learners.modules.policy import BinPolicy, PolicyGradient, clipped_surrogate
from equimetric.learners.pads import FACTORS, METRICS, draw_holdout_classes
from equimetric.runs.building import build_learner
from equimetric.runs.configuration import RunConfig
from equimetric.runs.result import DataShape
from equimetric.training import train
from equimetric.training.delayed_starts import explain_delayed_starts

SHAPE = DataShape(channels=1, vectors=False, classes=8, images=24)
LABELS = torch.arange(24) % 8


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("advantage", "loss", "gradient"),
    # A ratio above 1.2 gains nothing more from a good action, one below 0.8 nothing from a bad one.
    [(2.0, -1.85, [0.0, -0.25, -0.55, -0.45]), (-2.0, 2.15, [0.75, 0.0, 0.55, 0.45])],
)
def test_the_surrogate_is_clipped_as_worked_out(advantage, loss, gradient):
    old = float64([0.2, 0.4, 0.5, 0.6]).log()
    new = (old + float64([1.5, 0.5, 1.1, 0.9]).log()).requires_grad_()
    value = clipped_surrogate(new, old, float64(advantage))
    value.backward()
    torch.testing.assert_close(value.detach(), float64(loss))
    torch.testing.assert_close(new.grad, float64(gradient))


def transitions(number):
    generator = torch.Generator().manual_seed(5)
    states = torch.randn(number + 1, 6, generator=generator, dtype=torch.float64)
    actions = torch.randint(3, (number, 4), generator=generator)
    rewards = (torch.randint(3, (number,), generator=generator) - 1).tolist()
    scores = torch.rand(number, generator=generator).tolist()
    return list(zip(states[:-1], actions, rewards, scores, states[1:], strict=True))


def start(update):
    torch.manual_seed(2)
    return PolicyGradient(BinPolicy(6, 4, 3).double(), lr=0.01, update=update).double()


def ppo_by_hand(policy, transition, old, _):
    state, actions, reward, score, after = transition
    bins = range(len(actions))
    ratio = policy(state)[0].exp()[bins, actions] / old(state)[0].exp()[bins, actions]
    advantage = float((reward + 0.99 * policy(after)[1] - policy(state)[1]).detach())
    gains = [min(one * advantage, one.clamp(0.8, 1.2) * advantage) for one in ratio]
    return -sum(gains) / len(gains) + 0.5 * (policy(state)[1] - score) ** 2


def reinforce_by_hand(policy, transition, _, baseline):
    state, actions, reward, *_ = transition
    return -(reward - baseline) * policy(state)[0][range(len(actions)), actions].mean()


@pytest.mark.parametrize(("update", "loss"), [("ppo", ppo_by_hand), ("reinforce", reinforce_by_hand)])
def test_updates_are_those_of_adam_on_the_loss_of_the_paper(update, loss):
    learning = start(update)
    policy = copy.deepcopy(learning.policy).requires_grad_()
    old, baseline = copy.deepcopy(policy), 0.0
    adam = torch.optim.Adam(policy.parameters(), lr=0.01)
    for number, transition in enumerate(transitions(12), 1):
        state, actions, reward, score, after = transition
        learning.update(state, actions, reward=reward, score=score, next_state=after)
        adam.zero_grad()
        loss(policy, transition, old, baseline).backward()
        adam.step()
        baseline = 0.8 * baseline + 0.2 * reward
        if number % 5 == 0:
            old = copy.deepcopy(policy)
        assert_same_digits(learning.policy.state_dict(), policy.state_dict(), digits=7)
        assert_same_digits(learning.old.state_dict(), old.state_dict(), digits=7)
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in learning.parameters())


@pytest.mark.parametrize("update", ["ppo", "reinforce"])
def test_a_policy_prefers_what_is_rewarded(update):
    learning, state = start(update), torch.ones(6, dtype=torch.float64)
    for seed in range(150):
        actions = learning.draw(state, seed=seed)
        good = float(actions[1] == 2)
        learning.update(state, actions, reward=2 * good - 1, score=good, next_state=state)
    assert learning.policy(state)[0].exp()[1, 2] > 0.8


def test_actions_are_drawn_by_the_probabilities_of_the_policy():
    learning, state = start("ppo"), torch.ones(6, dtype=torch.float64)
    drawn = torch.stack([learning.draw(state, seed=seed) for seed in range(3000)])
    shares = torch.stack([(drawn == action).double().mean(0) for action in range(3)], 1)
    torch.testing.assert_close(shares, learning.policy(state)[0].exp(), rtol=0, atol=0.03)
    assert torch.equal(learning.draw(state, seed=7), drawn[7])


def build(**options):
    config = configuration("pads", learner={"name": "pads", "options": {"period": 2, **options}})
    return build_learner(RunConfig(**config), SHAPE).double()


def show(learner, step, **scores):
    """Let a learner see a training set whose held-out classes have these scores."""
    given = {**dict.fromkeys(METRICS, 0.5), **{name.replace("_at_", "@"): value for name, value in scores.items()}}
    seen = []

    def evaluate(embeddings, labels, metrics):
        seen.append(labels)
        return {name: given[name] for name in metrics}

    def apply(function, rows):
        assert rows is not None, "the other rows are not embedded"
        return {"embedding": torch.zeros(len(rows), 8)}

    learner.before_step(step)
    learner.on_epoch(EpochView(learner, LABELS, dict, [], apply, evaluate))
    return seen


def test_the_reward_is_the_sign_of_the_change_of_the_score():
    learner = build()
    rewards = []
    for number, (recall, nmi) in enumerate([(0.4, 0.4), (0.6, 0.4), (0.5, 0.3), (0.4, 0.4), (0.9, 0.1)]):
        show(learner, 2 * number, recall_at_1=recall, nmi=nmi)
        rewards.append(float(learner.reward))
    assert rewards == [0.0, 1.0, -1.0, 0.0, 1.0]
    assert int(learner.learning.updates) == 4
    alone = build(rewarded=["recall@1"])
    for number, (recall, nmi) in enumerate([(0.4, 0.4), (0.5, 0.1)]):
        show(alone, 2 * number, recall_at_1=recall, nmi=nmi)
    assert float(alone.reward) == 1.0


def test_the_policy_sees_measurements_their_means_the_distribution_and_the_progress():
    learner = build()
    for number in range(3):
        before = learner.sampling.distribution.clone()
        show(learner, 2 * number, recall_at_1=0.1 * (number + 1))
    state = learner.state
    recent, means = state[: 20 * 7].view(20, 7), state[20 * 7 : 24 * 7].view(4, 7)
    torch.testing.assert_close(recent[:4, 0], float64([0.3, 0.2, 0.1, 0.0]))
    torch.testing.assert_close(means[:, 0], float64([0.25, 0.2, 0.2, 0.2]))
    torch.testing.assert_close(means[:, 5], float64([0.5] * 4))
    assert torch.equal(state[24 * 7 : -1], before)
    assert float(state[-1]) == pytest.approx(4 / 7)
    assert len(state) == 20 * 7 + 4 * 7 + 29 + 1


def test_actions_multiply_bins_which_are_then_normalised():
    learner = build()
    for number in range(40):
        before = learner.sampling.distribution.clone()
        show(learner, 2 * number, recall_at_1=0.01 * number)
        expected = before * float64(FACTORS)[learner.actions]
        torch.testing.assert_close(learner.sampling.distribution, expected / expected.sum(), rtol=1e-9, atol=0)
        assert set(learner.actions.tolist()) == {0, 1, 2}
    assert (learner.sampling.distribution > 0).all()


def test_whole_classes_are_held_out_by_the_seed():
    learner = build()
    (labels,) = show(learner, 0)
    held = learner.held_out.nonzero()[:, 0]
    assert len(held) == 2
    assert torch.equal(labels.unique(), held)
    assert len(labels) == 6
    assert draw_holdout_classes(100, 0.15, seed=3).sum() == 15
    assert torch.equal(draw_holdout_classes(100, 0.15, seed=3), draw_holdout_classes(100, 0.15, seed=3))
    assert not torch.equal(draw_holdout_classes(100, 0.15, seed=3), draw_holdout_classes(100, 0.15, seed=4))


def test_a_learner_with_the_same_state_goes_on_alike():
    one, other = build(), build()
    for number in range(7):
        show(one, 2 * number, recall_at_1=0.1 * (number % 3))
    other.load_state_dict(one.state_dict())
    for number in range(7, 14):
        for learner in (one, other):
            show(learner, 2 * number, recall_at_1=0.1 * (number % 4))
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


@pytest.mark.parametrize("model", [{}, {"frozen": True}], ids=["network", "frozen features"])
def test_a_run_draws_no_held_out_class_and_logs_its_distribution(tmp_path, monkeypatch, model):
    seen = note_batches(monkeypatch, lambda learner: (learner.held_out.clone(), learner.sampling.distribution.clone()))
    trained = train(configuration("pads", model=model), folder=tmp_path)
    assert len(seen) == 7
    for batch, (held_out, _) in seen:
        assert held_out.sum() == 2
        assert not held_out[batch.labels].any()
    used = torch.stack([distribution for _, (_, distribution) in seen])
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    logged = [line["learner"] for line in lines if line["kind"] == "train"]
    bins = [[value for name, value in one.items() if name.startswith("negatives")] for one in logged]
    torch.testing.assert_close(torch.tensor(bins, dtype=used.dtype), used)
    torch.testing.assert_close(used.sum(1), torch.ones_like(used[:, 0]))
    # The period is two steps, and the last one has only one.
    assert [torch.equal(one, two) for one, two in pairwise(used)] == [True, False] * 3
    assert {one["reward"] for one in logged} <= {-1.0, 0.0, 1.0}
    assert list(logged[0])[:4] == ["held-out score", "reward", "negatives up to 0.145", "negatives up to 0.190"]
    assert list(logged[0])[-1] == "negatives above 1.355"
    assert trained.result.cost.training_only == 2 * sum(
        parameter.numel() for parameter in trained.learner.learning.policy.parameters()
    ) + sum(parameter.numel() for parameter in trained.learner.objective.parameters())


def test_policies_are_needed_in_training_alone_and_no_optimiser_of_the_run_moves_them():
    learner, batch = make("pads"), make_batch()
    policies = {id(parameter) for parameter in learner.learning.parameters()}
    groups = learner.parameter_groups()
    assert policies.isdisjoint(id(parameter) for own in groups.values() for parameter in own)
    sum(learner.losses(learner.outputs(batch), batch).values()).backward()
    assert all(parameter.grad is None for parameter in learner.learning.parameters())
    cost = require_training_only(learner, batch)
    assert cost.training_only > sum(parameter.numel() for parameter in learner.learning.policy.parameters())


def test_features_in_place_of_images_are_embedded_alike():
    learner, batch = make("pads", VECTORS), make_batch(VECTORS)
    assert learner.embed(batch.images).shape == (24, 8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: make("pads", method="triplet"), "the objective has 0; set method = 'pads'"),
        (lambda: build(rewarded=["recall@3"]), "does not measure 'recall@3'"),
        (lambda: build(rewarded=[]), "lists one metric or more"),
        (lambda: build(rewarded="nmi"), "lists one metric or more"),
        (lambda: build(update="sarsa"), "must be 'ppo' or 'reinforce', got 'sarsa'"),
        (lambda: build(share=0.9).holdout(LABELS), "holds 7 of 8 training classes out"),
        (lambda: build().holdout(torch.arange(8)), "has a second image"),
    ],
)
def test_what_makes_no_sense_is_refused(change, message):
    with pytest.raises(EquimetricError, match=message):
        change()


def test_a_method_of_triples_may_select_by_pads():
    learner = make("pads", method="triplet", options={"selection": "pads"})
    assert len(learner.sampling.distribution) == 29


def test_a_run_shorter_than_a_period_says_that_the_policy_learns_nothing(tmp_path):
    config = configuration("pads", learner={"name": "pads", "options": {}})
    learner = build_learner(RunConfig(**config), SHAPE)
    (sentence,) = explain_delayed_starts(RunConfig(**config), learner)
    assert "The policy takes no part in this run: it begins after 30 steps (learner.options.period)" in sentence
    with pytest.warns(EquimetricWarning, match="The policy takes no part"):
        train(config, folder=tmp_path)
