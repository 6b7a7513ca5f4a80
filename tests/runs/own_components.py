"""Plug-in files and a small study, for the tests of components of one's own."""

from contextlib import contextmanager

from equimetric.module_sources import finder
from equimetric.registry import REGISTRIES, loaded_plugins

GAP = '''"""A loss of one's own."""

import torch
from my_helpers import soften

import equimetric as em


@em.loss("gap", title="Gap", family="ranking", paper="Doe: Gaps (2026)")
def gap(pairs: em.Pairs, *, margin: float = 0.2) -> torch.Tensor:
    """The mean negative must be less similar than the mean positive, by a margin."""
    return soften(pairs.similarity[pairs.negative].mean() - pairs.similarity[pairs.positive].mean() + margin)


def plain(pairs, *, margin: float = 0.1):
    """The same without a decorator."""
    return gap(pairs, margin=margin)


class Boundary(torch.nn.Module):
    """A boundary that is learned."""

    def __init__(self, *, start: float = 0.5) -> None:
        super().__init__()
        self.boundary = torch.nn.Parameter(torch.tensor(start))

    def forward(self, pairs):
        """Positives above, negatives below."""
        pull = (self.boundary - pairs.similarity[pairs.positive]).relu().mean()
        return pull + (pairs.similarity[pairs.negative] - self.boundary).relu().mean()
'''
HELPERS = "def soften(x):\n    return x.relu()\n"

CONDITIONS = {
    "data": {"name": "digits"},
    "batch": {"classes": 3},
    "model": {"dim": 8},
    "training": {"steps": 2, "validate_every": 1},
    "evaluation": {"metrics": ["recall@1", "map@r"]},
}
STUDY = {"name": "own", "seeds": [0], "baselines": ["raw_pixels"], **CONDITIONS}


def write_plugin(folder, name="my_losses", text=GAP):
    """A plug-in and the module beside it that it imports."""
    folder.mkdir(exist_ok=True)
    (folder / "my_helpers.py").write_text(HELPERS)
    (folder / f"{name}.py").write_text(text)
    return folder / f"{name}.py"


@contextmanager
def forgotten_plugins():
    """Forget at the end what was loaded in the block, as a process that never loaded it."""
    before = set(finder.sources) | set(loaded_plugins)
    yield
    forget_plugins(before)


def forget_plugins(kept=frozenset()):
    """Forget all plug-ins, as a process that never loaded one."""
    finder.remove([name for name in {*finder.sources, *loaded_plugins} if name not in kept])
    losses = REGISTRIES["loss", "equimetric.losses"]
    for name in [name for name in losses if ":" in name]:
        losses.forget(name.partition(":")[0])
