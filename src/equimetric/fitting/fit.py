"""`fit_model`: from a folder of images to an exported model with a certificate, within a time budget."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from equimetric.calibration import Certificate
from equimetric.deployment.certification import ThresholdTarget
from equimetric.deployment.embedder import Embedder
from equimetric.deployment.export import export_run
from equimetric.deployment.graphs import require_onnx
from equimetric.deployment.load import load_exported
from equimetric.errors import EquimetricError, EquimetricWarning, StorageError
from equimetric.files import explain_write_error, sync_folder, write_atomically
from equimetric.fitting.budget import Budget
from equimetric.fitting.choice import CandidateChoice, Notify, choose_candidate
from equimetric.fitting.configurations import PLAN, STUDY, run_toml, study_toml
from equimetric.fitting.normalization import describe_normalization, fitted_cohort
from equimetric.fitting.outcome import FitOutcome, open_test_classes
from equimetric.fitting.plan import BACKBONE, Plan, make_plan
from equimetric.fitting.report import render_report
from equimetric.progress import format_seconds
from equimetric.runs.access import require_writable
from equimetric.runs.building import build_learner
from equimetric.runs.configuration import RunConfig
from equimetric.runs.evaluation import CohortOverride
from equimetric.runs.features import estimate_seconds
from equimetric.runs.key import RunKey
from equimetric.runs.model import TrainedModel
from equimetric.runs.regimes import fit_to_data
from equimetric.runs.result import RunResult
from equimetric.runs.run_cache import RunCache
from equimetric.threads import use_threads
from equimetric.training import train

__all__ = ["FitResult", "fit_model", "quiet_warnings", "require_new", "run_plan"]

REPORT = "report.html"


@dataclass(frozen=True, eq=False)
class FitResult:
    """A finished fit.

    Attributes:
        folder: the exported model, with plan and report.
        run: the folder of the run behind it.
        plan, choice: the plan and the chosen candidate.
        certificate: certificate of the exported model.
        outcome: results on the test classes.
        seconds: duration.
    """

    folder: Path
    run: Path
    plan: Plan
    choice: CandidateChoice
    certificate: Certificate
    outcome: FitOutcome
    seconds: float

    def load(self) -> Embedder:
        """The exported model."""
        return load_exported(self.folder)


def fit_model(
    source: str | Path,
    out: str | Path,
    *,
    minutes: float = 10,
    far: float | None = None,
    seed: int = 0,
    backbone: str = BACKBONE,
    path: str | None = None,
    label: str | None = None,
    licence: str = "unknown",
    notify: Notify = lambda _: None,
) -> FitResult:
    """Fit an embedding and a threshold to a folder of classes, or to a list of images, and export both.

    minutes      time budget
    far          the false accept rate to calibrate for; by default 1e-2, or the smallest that the images allow
    backbone     backbone of the features
    path, label  columns of a list of images
    licence      of the model, for its card
    notify       called with a sentence at every stage

    Finished work (features, trials, the run) is kept beside `out`, by content: after a crash or a stop the same call
    resumes there, and nothing made for other images or settings is used.
    """
    budget, target = Budget(60 * minutes), Path(out).expanduser()
    require_new(target)
    plan = make_plan(source, far=far, seed=seed, backbone=backbone, path=path, label=label)
    with quiet_warnings():
        return run_plan(plan, target, budget, licence=licence, notify=notify)


@contextmanager
def explain_write_errors(target: Path) -> Iterator[None]:
    """Turn a failed write beside the model into one sentence; any other error of the system stays as it is."""
    try:
        yield
    except OSError as error:
        if not str(error.filename or target).startswith(str(target)):
            raise
        raise StorageError(
            f"the model cannot be written to {str(target.parent)!r}: {explain_write_error(error)}; make room there, or "
            "give another --out, and run the same command again"
        ) from error


@contextmanager
def quiet_warnings() -> Iterator[None]:
    """Silence warnings of the data and of the cohort: the plan and the notes of the run repeat them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EquimetricWarning)
        yield


def require_new(target: Path) -> None:
    """Raise an error where a model cannot be written."""
    if target.exists():
        raise EquimetricError(f"{str(target)!r} is there already; choose another folder, or remove it")
    require_writable(target, "folder")


def run_plan(plan: Plan, target: Path, budget: Budget, *, licence: str = "unknown", notify: Notify) -> FitResult:
    """Execute a plan: features, trials, training, threshold, export, test, report."""
    with explain_write_errors(target):
        return run_stages(plan, target, budget, licence, notify)


def run_stages(plan: Plan, target: Path, budget: Budget, licence: str, notify: Notify) -> FitResult:
    """From features to the exported folder; what is finished is kept beside it."""
    work, cache = work_folder(target), RunCache()
    precompute_features(plan, budget, cache, notify)
    choice = choose_candidate(plan, work / "trials", budget, cache, notify)
    best = choice.best.candidate
    timeout_text = "; the time for trials is up" if choice.timed_out else ""
    notify(f"{choice.describe()}{timeout_text}")
    trained = train_chosen(plan.run_config(best), work / "runs", cache)
    notify(f"{describe_training(trained.result)}; {budget.describe()}")
    notify(describe_normalization(trained.result.cohort))
    cohort = fitted_cohort(trained.result.cohort)
    exported = work / "export" / target.name
    certificate = export_model(plan, trained, cohort, exported, licence)
    notify(f"calibrated and exported; {budget.describe()}")
    outcome = open_test_classes(trained.folder, certificate)
    finished = FitResult(target, trained.folder, plan, choice, certificate, outcome, budget.spent)
    write_atomically(exported / PLAN, run_toml(plan, best, cohort))
    write_atomically(exported / STUDY, study_toml(plan, cohort))
    write_atomically(exported / REPORT, render_report(finished, trained.result))
    exported.rename(target)
    sync_folder(target.parent)
    return finished


def work_folder(target: Path) -> Path:
    """Folder of trials and runs: model.fit beside model."""
    return target.with_name(f"{target.name}.fit")


def precompute_features(plan: Plan, budget: Budget, cache: RunCache, notify: Notify) -> None:
    """Compute the features of all images unless cached; raises an error where that exceeds the time budget."""
    config = plan.run_config(plan.candidates[0])
    with use_threads(config.training.threads):
        data = cache.data(config)
        backbone = build_learner(fit_to_data(config, data.shape), data.shape, cache=cache).frozen_backbone()
        assert backbone is not None
        seconds = estimate_seconds(backbone, data.eval_data)
        task = f"the features of {len(data.dataset):,} images"
        budget.require(seconds, task)
        if seconds:
            notify(f"{task} take about {format_seconds(seconds)}")
        with budget.stop_in_time(backbone, task):
            cache.with_features(data, backbone)


def train_chosen(config: RunConfig, folder: Path, cache: RunCache) -> TrainedModel:
    """The run of the chosen configuration, in a folder named by all that determines it."""
    data = cache.data(config)
    key = RunKey.from_config(fit_to_data(config, data.shape), data.fingerprint)
    return train(config, folder=folder / key.folder, cache=cache)


def describe_training(result: RunResult) -> str:
    """Number of steps taken, and the exported one."""
    if result.steps == 0:
        return "nothing to train"
    if result.best_step == 0:
        return f"trained {result.steps} steps, none better than the start, the principal components: these are exported"
    return f"trained {result.steps} steps, the best {result.best_step}"


def export_model(plan: Plan, trained: TrainedModel, cohort: CohortOverride, folder: Path, licence: str) -> Certificate:
    """Calibrate and export; replaces the result of an interrupted start."""
    import shutil

    # Not the user's folder: a crash of an earlier start may have left it.
    shutil.rmtree(folder, ignore_errors=True)
    model = export_run(
        trained.folder,
        folder,
        threshold=ThresholdTarget(far=plan.far),
        part=plan.parts.calibration,
        cohort=cohort,
        onnx=has_onnx(),
        licence=licence,
    )
    assert isinstance(model.certificate, Certificate)
    return model.certificate


def has_onnx() -> bool:
    """Whether the packages for an ONNX graph are installed."""
    try:
        require_onnx("")
    except EquimetricError:
        return False
    return True
