"""Classes that arrive in rounds: how much of earlier ones is forgotten."""

from collections.abc import Sequence
from pathlib import Path

from equimetric.runs.rounds import evaluate_rounds
from equimetric.studies.probes.probe import Progress, probe

__all__ = ["forgetting_probe"]


@probe("forgetting", title="Classes that arrive in rounds", sweep="rounds")
def forgetting_probe(folders: Sequence[Path], progress: Progress) -> dict[str, float]:  # noqa: ARG001  (every probe takes it)
    """The metric on the test classes after each round, on the classes seen so far, forgetting, backward transfer."""
    rounds = evaluate_rounds(folders)
    values = {f"test {rounds.metric} after round {k}": value for k, value in enumerate(rounds.test, start=1)}
    means = enumerate(rounds.classes.mean_so_far, start=1)
    values |= {f"{rounds.metric} of classes seen after round {k}": float(value) for k, value in means}
    values["forgetting"] = float(rounds.classes.forgetting)
    values["backward transfer"] = float(rounds.classes.backward_transfer)
    return values
