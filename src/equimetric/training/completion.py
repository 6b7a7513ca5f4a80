"""The end of a run: the best weights, the test classes once, the result."""

from __future__ import annotations

from safetensors.torch import save

from equimetric.runs.building import count_parameters
from equimetric.runs.evaluation import NEIGHBOURS, embed_part, evaluate_part, per_query_arrays
from equimetric.runs.key import Role
from equimetric.runs.model import TrainedModel
from equimetric.runs.result import RunResult
from equimetric.training.checkpoint import all_weights, load_best_weights, remove_checkpoints
from equimetric.training.session import Session

__all__ = ["finish_run"]


def finish_run(session: Session, role: Role) -> TrainedModel:
    """Load the best weights, evaluate them on the test classes, write weights and result, remove the checkpoints."""
    config, run, learner, state = session.config, session.run, session.learner, session.state
    load_best_weights(learner, state)
    found = embed_part(learner, session.data, "test", session.processes, cohort=config.evaluation.cohort)
    scores = evaluate_part(found, config.evaluation, neighbours=NEIGHBOURS)
    run.write_per_query(per_query_arrays(scores, found))
    if run.writes:
        run.write("model.safetensors", save(all_weights(learner)))
    result = RunResult(
        status="done",
        role=role,
        method=config.method,
        seed=config.seed,
        metrics=dict(scores),
        validation=state.best_scores,
        best_step=state.best_step,
        steps=state.step,
        seconds=state.seconds,
        parameters=count_parameters(learner),
        data=session.shape,
    )
    run.write_result(result)
    remove_checkpoints(run)
    session.processes.barrier()
    learner.eval()
    return TrainedModel(config, learner, run.path, result)
