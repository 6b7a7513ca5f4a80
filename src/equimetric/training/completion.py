"""The end of a run: the best weights, the test classes once, the result."""

from __future__ import annotations

from safetensors.torch import save

from equimetric.runs.building import count_parameters
from equimetric.runs.evaluation import NEIGHBOURS, embed_part, evaluate_part, per_query_arrays
from equimetric.runs.key import Role
from equimetric.runs.model import TrainedModel
from equimetric.runs.result import RunResult, RunSource
from equimetric.training.advice import run_notes
from equimetric.training.checkpoint import all_weights, load_best_weights, remove_checkpoints
from equimetric.training.session import Session

__all__ = ["finish_run"]


def finish_run(session: Session, role: Role) -> TrainedModel:
    """Load the best weights, evaluate them on the test classes, write weights and result, remove the checkpoints."""
    config, run, learner, state = session.config, session.run, session.learner, session.state
    load_best_weights(learner, state)
    metrics = evaluate_test(session)
    if run.writes:
        run.write("model.safetensors", save(all_weights(learner)))
    refit = config.refit
    result = RunResult(
        status="done",
        role=role,
        method=config.method,
        seed=config.seed,
        metrics=metrics,
        validation=state.best_scores,
        best_step=state.best_step,
        steps=state.step,
        seconds=state.seconds,
        parameters=count_parameters(learner),
        data=session.shape,
        notes=run_notes(session),
        source=refit and RunSource(key=refit.source, folder=refit.folder, best_step=refit.steps),
    )
    run.write_result(result)
    remove_checkpoints(run)
    session.processes.barrier()
    learner.eval()
    return TrainedModel(config, learner, run.path, result)


def evaluate_test(session: Session) -> dict[str, float]:
    """The figures of the test classes, with per-query scores beside the result; none where they were trained on."""
    config = session.config
    if config.refit is not None and "test" in config.refit.added_parts:
        return {}
    found = embed_part(session.learner, session.data, "test", session.processes, cohort=config.evaluation.cohort)
    scores = evaluate_part(found, config.evaluation, neighbours=NEIGHBOURS)
    session.run.write_per_query(per_query_arrays(scores, found))
    return dict(scores)
