"""The end of a run: best weights, one evaluation of the test classes, result; and loading a finished run."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
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
"""Name of whole items among the members, where the metrics of a run are those of a search across modalities."""


def find_finished(run: RunFolder, config: RunConfig, key: RunKey, processes: Processes) -> TrainedModel | None:
    """The model of exactly this run if the folder holds it finished; None if it has to be trained.

    Unfinished files of a killed process are removed.
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
    # The files of a start without progress may be incomplete.
    if not run.has_progress() or not run.holds(key):
        return None
    try:
        result = run.result()
        if result is None or result.status != "done":
            return None
        try:
            run.config()
        except DamagedFileError as error:
            warnings.warn(f"{error.problem}; it is written again", stacklevel=2)
            run.write_config(config)
        return load_run(run.path)
    except DamagedFileError as error:
        warnings.warn(f"{error.problem}; the run is trained again", stacklevel=2)
        run.remove(RESULT)
        return None


def finish_run(session: Session, role: Role, memory: PeakMemory) -> TrainedModel:
    """Load the best weights, evaluate them on the test classes, write weights and result, remove the checkpoints."""
    config, run, learner, state = session.config, session.run, session.learner, session.state
    load_best_weights(learner, state)
    test = evaluate_test(session)
    write_weights(session)
    refit = config.refit
    result = RunResult(
        status="done",
        role=role,
        method=config.method,
        seed=config.seed,
        **test.result_fields,
        validation=state.best_scores,
        best_step=state.best_step,
        steps=state.step,
        seconds=state.seconds,
        memory=memory.read(),
        parameters=count_parameters(learner),
        data=session.shape,
        notes=(*run_notes(session, test.undefined), *cohort_notes(test.result_fields.get("cohort")), *test.notes),
        source=refit and RunSource(key=refit.source, folder=refit.folder, best_step=refit.steps),
    )
    run.write_result(result)
    remove_checkpoints(run)
    session.processes.barrier()
    learner.eval()
    return TrainedModel(config, learner, run.path, result)


def write_weights(session: Session) -> None:
    """Write the trained weights and, in a file of its own, the frozen backbone; both are on the disk with the result.

    The runs of a study have the same frozen backbone: each folder holds it whole, and the disk holds it once.
    """
    run, learner, cache = session.run, session.learner, session.cache
    if not run.writes:
        return
    metadata, trained = None, copy_weights(learner, session.frozen)
    if session.frozen:
        backbone = learner.frozen_backbone()
        key = (backbone, frozenset(session.frozen))
        cached = cache.frozen_files.find(key)
        if cached is None or not run.link(FROZEN_WEIGHTS, cached):
            run.write(FROZEN_WEIGHTS, save(copy_weights(learner, trained)), sync=False)
            if backbone is not None and cache.holds(backbone):
                cache.frozen_files.put(key, run.describe(FROZEN_WEIGHTS))
        metadata = {"backbone": run.written[FROZEN_WEIGHTS]["sha256"]}
    run.write(WEIGHTS, save(trained, metadata), sync=False)


@dataclass(frozen=True)
class TestEvaluation:
    """Scores of the test classes.

    Attributes:
        result_fields: fields of the run's result, by name.
        undefined: metrics that are NaN because the embeddings leave them undefined, with the reason.
        notes: what a reader of the scores should know.
    """

    result_fields: dict[str, Any] = field(default_factory=dict)
    undefined: dict[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()


def evaluate_test(session: Session) -> TestEvaluation:
    """Evaluate the test classes and write per-query scores; empty where the model was trained on them.

    With a cohort, the scores without it are included. Anything to choose is chosen on the validation classes.
    """
    config, learner, data, processes = session.config, session.learner, session.data, session.processes
    evaluation = config.evaluation
    if config.refit is not None and "test" in config.refit.added_parts:
        return TestEvaluation()
    cohorts = RunCohorts(learner, data, processes)
    setting = None if evaluation.cohort is None else cohorts.choose(evaluation.cohort)
    cohort = None if setting is None else cohorts.cohort(setting)
    items = within_parents(embed_part(learner, data, "test", processes, cohort=cohort), data, evaluation.parents)
    embedded = items
    if evaluation.across is not None:
        embedded = embed_part(learner, data, "test", processes, across=evaluation.across)
    scores, undefined = evaluate_defined(embedded, evaluation, neighbours=NEIGHBOURS)
    session.run.write_per_query(per_query_arrays(scores, embedded))
    if session.profiled and session.run.writes:
        session.run.write_profile(profile_part(embedded, scores, evaluation).arrays())
    plain = {} if setting is None else dict(evaluate_defined(embedded.plain(), evaluation, neighbours=NEIGHBOURS)[0])
    member_embeddings = embed_members(learner, data.images("test"), processes=processes)
    # In a search across modalities, the metrics of whole items are reported next to those of each modality.
    whole_items = {} if evaluation.across is None else {BOTH: items.embeddings}
    members, diversity = evaluate_members(learner, data, items, evaluation, member_embeddings, whole_items)
    result_fields: dict[str, Any] = {
        "metrics": dict(scores),
        "plain": plain,
        "cohort": setting,
        "members": members,
        "diversity": diversity,
    }
    if learner.paired is not None:
        pairs = pair_members(learner, data, "test", member_embeddings)
        result_fields["cross_modal"] = evaluate_across(pairs, evaluation.compared_by())
    result_fields["cost"] = measure_cost(learner, embedded.embeddings.shape[1])
    return TestEvaluation(result_fields, undefined, scores.notes)
