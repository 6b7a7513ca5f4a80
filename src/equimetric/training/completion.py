"""The end of a run: the best weights, the test classes once, the result; and finding a run that has ended."""

from __future__ import annotations

import warnings
from typing import Any

from safetensors.torch import save

from equimetric.errors import DamagedFileError
from equimetric.files import sweep
from equimetric.processes import Processes
from equimetric.runs.building import count_parameters
from equimetric.runs.cohorts import RunCohorts, cohort_notes
from equimetric.runs.configuration import RunConfig
from equimetric.runs.evaluation import NEIGHBOURS, embed_part, evaluate_defined, per_query_arrays, within_parents
from equimetric.runs.folder import RESULT, WEIGHTS, RunFolder
from equimetric.runs.key import Role, RunKey
from equimetric.runs.model import TrainedModel, load
from equimetric.runs.result import RunResult, RunSource
from equimetric.training.advice import run_notes
from equimetric.training.checkpoint import all_weights, load_best_weights, remove_checkpoints
from equimetric.training.session import Session

__all__ = ["find_finished", "finish_run"]


def find_finished(run: RunFolder, config: RunConfig, key: RunKey, processes: Processes) -> TrainedModel | None:
    """The model of this very run where the folder holds it finished; None where it has to be trained.

    What a killed process left in the folder is removed.
    """
    model = None
    if processes.is_main:
        sweep(run.path)
        model = load_intact(run, config, key)
    if not processes.broadcast(model is not None):
        return None
    remove_checkpoints(run)
    return model or load(run.path)


def load_intact(run: RunFolder, config: RunConfig, key: RunKey) -> TrainedModel | None:
    """The model of a finished run; a damaged configuration is written again, other damage means training again."""
    if not run.holds(key):
        return None
    try:
        result = run.result()
        if result is None or result.status != "done":
            return None
        try:
            run.config()
        except DamagedFileError as damage:
            warnings.warn(f"{damage.problem}; it is written again", stacklevel=2)
            run.write_config(config)
        return load(run.path)
    except DamagedFileError as damage:
        warnings.warn(f"{damage.problem}; the run is trained again", stacklevel=2)
        run.remove(RESULT)
        return None


def finish_run(session: Session, role: Role) -> TrainedModel:
    """Load the best weights, evaluate them on the test classes, write weights and result, remove the checkpoints."""
    config, run, learner, state = session.config, session.run, session.learner, session.state
    load_best_weights(learner, state)
    figures, undefined, notes = evaluate_test(session)
    if run.writes:
        run.write(WEIGHTS, save(all_weights(learner)))
    refit = config.refit
    result = RunResult(
        status="done",
        role=role,
        method=config.method,
        seed=config.seed,
        **figures,
        validation=state.best_scores,
        best_step=state.best_step,
        steps=state.step,
        seconds=state.seconds,
        parameters=count_parameters(learner),
        data=session.shape,
        notes=(*run_notes(session, undefined), *cohort_notes(figures.get("cohort")), *notes),
        source=refit and RunSource(key=refit.source, folder=refit.folder, best_step=refit.steps),
    )
    run.write_result(result)
    remove_checkpoints(run)
    session.processes.barrier()
    learner.eval()
    return TrainedModel(config, learner, run.path, result)


def evaluate_test(session: Session) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """The figures of the test classes for the result, with per-query scores beside it; none where they were trained on.

    With a cohort, the figures without it are among them. What is to be chosen is chosen on the validation classes. Also
    why some figures are NaN, where the embeddings leave a metric undefined, and what their reader should know.
    """
    config, learner, data, processes = session.config, session.learner, session.data, session.processes
    if config.refit is not None and "test" in config.refit.added_parts:
        return {}, {}, []
    cohorts, wanted = RunCohorts(learner, data, processes), config.evaluation.cohort
    setting = None if wanted is None else cohorts.choose(wanted)
    cohort = None if setting is None else cohorts.cohort(setting)
    found = embed_part(learner, data, "test", processes, cohort=cohort)
    found = within_parents(found, data, config.evaluation.parents)
    how: dict[str, Any] = {"config": config.evaluation, "neighbours": NEIGHBOURS}
    scores, undefined = evaluate_defined(found, **how)
    session.run.write_per_query(per_query_arrays(scores, found))
    plain = {} if setting is None else dict(evaluate_defined(found.plain(), **how)[0])
    return {"metrics": dict(scores), "plain": plain, "cohort": setting}, undefined, scores.notes
