"""A policy that chooses an action for every bin of a distribution, and how it learns from rewards."""

from __future__ import annotations

import copy
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call

__all__ = ["BinPolicy", "PolicyGradient", "Update", "clipped_surrogate"]

Update: TypeAlias = Literal["ppo", "reinforce"]

HIDDEN = 128
"""Units of each of the policy's two layers."""
CLIP = 0.2
"""Ratios of new and old probabilities count within 1 ± CLIP."""
DISCOUNT = 0.99
"""Weight of the value of the next state."""
VALUE_WEIGHT = 0.5
"""Weight of the squared error of the value."""
REFRESH = 5
"""Updates after which the old policy becomes the new one."""
BASELINE_DECAY = 0.8
"""Decay of the moving average of rewards that REINFORCE subtracts from a reward."""
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
"""Adam betas and epsilon."""


class BinPolicy(nn.Module):
    """(S,) state → (bins, actions) log-probabilities, of each bin separately, and the value of the state."""

    def __init__(self, state: int, bins: int, actions: int) -> None:
        super().__init__()
        self.shape = bins, actions
        self.body = nn.Sequential(nn.Linear(state, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU())
        self.actions = nn.Linear(HIDDEN, bins * actions)
        self.value = nn.Linear(HIDDEN, 1)

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the actions and the value, a number."""
        hidden = self.body(state)
        return self.actions(hidden).view(self.shape).log_softmax(1), self.value(hidden)[0]


def clipped_surrogate(log_new: Tensor, log_old: Tensor, advantage: Tensor) -> Tensor:
    """−mean_b min(ρ_b A, clip(ρ_b, 0.8, 1.2) A), ρ_b = π(a_b) / π_old(a_b) from (bins,) log-probabilities."""
    ratio = (log_new - log_old).exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()


class PolicyGradient(nn.Module):
    """A policy with all it needs to learn: the old policy, the moments of Adam, a mean of the rewards.

    The optimiser of a run never sees the policy: its parameters require no gradient. `update` learns from one
    transition, from state s by the actions a to the state s′, which the reward r judges and at which the score is e:

    ppo        A = r + 0.99 V(s′) − V(s),  L = −mean_b min(ρ_b A, clip(ρ_b) A) + ½ (V(s) − e)²
    reinforce  A = r − r̄,                  L = −A mean_b log π(a_b | s),  then r̄ ← 0.8 r̄ + 0.2 r

    No gradient flows through A. The value learns the score, not the return, as in the authors' code.
    """

    mean: Tensor
    square: Tensor
    updates: Tensor
    baseline: Tensor

    def __init__(self, policy: BinPolicy, *, lr: float, update: Update) -> None:
        super().__init__()
        self.policy = policy.requires_grad_(False)
        self.old = copy.deepcopy(policy)
        self.lr, self.kind = lr, update
        size = sum(parameter.numel() for parameter in policy.parameters())
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("square", torch.zeros(size))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self.register_buffer("baseline", torch.zeros(()))

    @torch.no_grad()
    def draw(self, state: Tensor, *, seed: int) -> Tensor:
        """(bins,) an action for each bin."""
        generator = torch.Generator().manual_seed(seed)
        probs = self.policy(state)[0].exp().cpu()
        return torch.multinomial(probs, 1, generator=generator)[:, 0].to(state.device)

    def update(self, state: Tensor, actions: Tensor, *, reward: float, score: float, next_state: Tensor) -> None:
        """Learn from one transition; every fifth update the old policy becomes the new one."""
        parameters = {name: value.detach().requires_grad_() for name, value in self.policy.named_parameters()}
        with torch.enable_grad():
            log_probs, value = functional_call(self.policy, parameters, (state,))
            log_new = log_probs.gather(1, actions[:, None])[:, 0]
            if self.kind == "ppo":
                advantage = (reward + DISCOUNT * self.policy(next_state)[1] - value).detach()
                log_old = self.old(state)[0].gather(1, actions[:, None])[:, 0]
                loss = clipped_surrogate(log_new, log_old, advantage) + VALUE_WEIGHT * (value - score).square()
            else:
                loss = -(reward - self.baseline) * log_new.mean()
            gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True, materialize_grads=True)
        self.baseline.lerp_(torch.full_like(self.baseline, reward), 1 - BASELINE_DECAY)
        self.updates += 1
        self.descend(torch.cat([gradient.flatten() for gradient in gradients]))
        if self.updates % REFRESH == 0:
            self.old.load_state_dict(self.policy.state_dict())

    @torch.no_grad()
    def descend(self, gradient: Tensor) -> None:
        """A step of Adam along the gradient of all parameters, whose moments are buffers of the state."""
        count = int(self.updates)
        self.mean.lerp_(gradient, 1 - BETA1)
        self.square.lerp_(gradient.square(), 1 - BETA2)
        mean, square = self.mean / (1 - BETA1**count), self.square / (1 - BETA2**count)
        step = self.lr * mean / (square.sqrt() + EPSILON)
        parameters = list(self.policy.parameters())
        for parameter, part in zip(
            parameters, torch.split(step, [parameter.numel() for parameter in parameters]), strict=True
        ):
            parameter.sub_(part.view_as(parameter))
