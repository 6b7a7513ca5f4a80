"""A-BIER: boosted slices of one embedding that cannot be predicted from one another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from torch import nn

from equimetric.learners.bier import Bier
from equimetric.learners.learner import learner

__all__ = ["ABier"]


@learner("a_bier", paper="Opitz, Waltner, Possegger, Bischof: Deep metric learning with BIER (2018)")
class ABier(Bier):
    """BIER with regressors that predict one member from another, and members that evade them by a reversed gradient.

    The regressors are a part of the objective and have the parameter group "adversary": they learn at the rate of the
    network unless [optimizer.groups.adversary] gives them their own.
    """

    method: ClassVar[str] = "a_bier"
    diversities: ClassVar[tuple[str, ...]] = ("adversarial",)

    def parameter_groups(self) -> dict[str, Iterable[nn.Parameter]]:
        """Trunk and head of the network, and the regressors."""
        return {**self.network.parameter_groups(), "adversary": self.loss.regressors.parameters()}
