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
from equimetric.runs.cross_modal import evaluate_across, pair_members
from equimetric.runs.embedding import embed_members
from equimetric.runs.evaluation import NEIGHBOURS, embed_part, evaluate_defined, per_query_arrays, within_parents
from equimetric.runs.folder import FROZEN_WEIGHTS, RESULT, WEIGHTS, RunFolder
from equimetric.runs.key import Role, RunKey
from equimetric.runs.members import evaluate_members, measure_cost
from equimetric.runs.model import TrainedModel, load_run
from equimetric.runs.profile import profile_part
from equimetric.runs.result import RunResult, RunSource
from equimetric.training.advice import run_notes
from equimetric.training.checkpoint import copy_weights, load_best_weights, remove_checkpoints
from equimetric.training.memory import PeakMemory
from equimetric.training.session import Session

__all__ = ["find_finished", "finish_run"]

BOTH = "both"
"""Whole items among the members, where the figures of a run are those of a search across modalities."""


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
    return model or load_run(run.path)


def load_intact(run: RunFolder, config: RunConfig, key: RunKey) -> TrainedModel | None:
    """The model of a finished run; a damaged configuration is written again, other damage means training again."""
    # What a start without progress left may not even be whole.
    if not run.has_progress() or not run.holds(key):
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
        return load_run(run.path)
    except DamagedFileError as damage:
        warnings.warn(f"{damage.problem}; the run is trained again", stacklevel=2)
        run.remove(RESULT)
        return None


def finish_run(session: Session, role: Role, memory: PeakMemory) -> TrainedModel:
    """Load the best weights, evaluate them on the test classes, write weights and result, remove the checkpoints."""
    config, run, learner, state = session.config, session.run, session.learner, session.state
    load_best_weights(learner, state)
    figures, undefined, notes = evaluate_test(session)
    write_weights(session)
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
        memory=memory.read(),
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


def write_weights(session: Session) -> None:
    """Write what was trained and, as a file of its own, the frozen backbone; both are on the disk with the result.

    The runs of a study have the same frozen backbone: each folder holds it whole, and the disk holds it once.
    """
    run, learner, cache = session.run, session.learner, session.cache
    if not run.writes:
        return
    metadata, trained = None, copy_weights(learner, session.frozen)
    if session.frozen:
        backbone = learner.frozen_backbone()
        key = (backbone, frozenset(session.frozen))
        known = cache.frozen_files.find(key)
        if known is None or not run.link(FROZEN_WEIGHTS, known):
            run.write(FROZEN_WEIGHTS, save(copy_weights(learner, trained)), sync=False)
            if backbone is not None and cache.holds(backbone):
                cache.frozen_files.put(key, run.describe(FROZEN_WEIGHTS))
        metadata = {"backbone": run.written[FROZEN_WEIGHTS]["sha256"]}
    run.write(WEIGHTS, save(trained, metadata), sync=False)


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
    whole = embed_part(learner, data, "test", processes, cohort=cohort)
    found = whole = within_parents(whole, data, config.evaluation.parents)
    if config.evaluation.across is not None:
        found = embed_part(learner, data, "test", processes, across=config.evaluation.across)
    how: dict[str, Any] = {"config": config.evaluation, "neighbours": NEIGHBOURS}
    scores, undefined = evaluate_defined(found, **how)
    session.run.write_per_query(per_query_arrays(scores, found))
    if session.profiled and session.run.writes:
        session.run.write_profile(profile_part(found, scores, config.evaluation).arrays())
    plain = {} if setting is None else dict(evaluate_defined(found.plain(), **how)[0])
    own = embed_members(learner, data.images("test"), processes=processes)
    # Where one modality is searched for by the other, the figures of whole items stand beside those of each alone.
    whole_items = {} if config.evaluation.across is None else {BOTH: whole.embeddings}
    members, diversity = evaluate_members(learner, data, whole, config.evaluation, own, whole_items)
    figures: dict[str, Any] = {
        "metrics": dict(scores),
        "plain": plain,
        "cohort": setting,
        "members": members,
        "diversity": diversity,
    }
    if learner.paired is not None:
        pairs = pair_members(learner, data, "test", own)
        figures["cross_modal"] = evaluate_across(pairs, config.evaluation.compared_by())
    return {**figures, "cost": measure_cost(learner, found.embeddings.shape[1])}, undefined, scores.notes
