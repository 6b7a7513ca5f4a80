"""The configuration files that a fit writes for `train` and `compare`, with comments on what may be changed."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from typing import Any

from equimetric.configuration import load_config, without_none
from equimetric.fitting.plan import UNTRAINED, Candidate, Plan
from equimetric.runs.configuration import RunConfig
from equimetric.runs.evaluation import CohortOverride
from equimetric.studies.configuration import StudyConfig

__all__ = ["PLAN", "STUDY", "run_toml", "study_toml"]

PLAN, STUDY = "plan.toml", "study.toml"
STUDY_NAME = "fit"

RUN_HEADER = """\
Written by `equimetric fit`: the run behind the model, to be trained again, changed as you like, and exported. From
any folder:

  equimetric train {file} --folder RUN
  equimetric export RUN model-2 --part {part} --far {far:g}{cohort}

Unchanged, the same model comes out. Keys that are not here have their defaults; an unknown key is an error that says
which ones there are.
"""

STUDY_HEADER = """\
Written by `equimetric fit`: the objectives that it began with, with their defaults and under the same conditions.
From any folder, a table with intervals and a report, both in runs/{name}:

  equimetric compare {file}

Keys that are not here have their defaults; an unknown key is an error that says which ones there are.
"""

PRIVATE = """
The path of your images and the names of your classes are in this file: leave it out when you publish the model.
"""

NO_TRAINING = (
    "Without training, as validation classes preferred; for an objective write its name, and remove [learner]."
)

KEY_COMMENTS = {
    "method": "One of `equimetric methods`.",
    "name": "The name of the study, and of its folder below runs.",
    "seeds": "One run of each method for each seed; with more of them, intervals are narrower.",
}
TABLE_COMMENTS = {
    "[data.options]": "damaged = 'skip' leaves out files that cannot be read; min_images, classes with fewer images.",
    "[data.parts]": (
        "Classes by name, none in two lists; those of no list are left out. Move classes between train and validation "
        "as you like. Those to calibrate and to test on are worth what they are only while nothing trains on them or "
        "is chosen by them, and every further look at the test classes takes from that."
    ),
    "[model]": (
        "One of `equimetric backbones`. dim = 256 sets the dimension of the embedding; frozen = false trains the "
        "backbone too, which takes hours without a graphics card."
    ),
    "[training]": "At most `steps` steps; it ends earlier after `patience` steps without a better validation.",
    "[evaluation]": (
        "Measured on validation classes during training and on test classes at the end; selected_by keeps the weights "
        "of its best validation."
    ),
    "[evaluation.cohort]": (
        "Similarities are normalised by these classes, as the fit decided; without this table they are plain cosines."
    ),
    "[methods": "A table for each method, with its options: options = { margin = 0.3 }. All above holds for each.",
}
"""Comments above top-level keys and tables; where several tables share a prefix, above the first."""

TUNING = """
# To tune all of them alike first, on validation classes (pip install "equimetric[tuning]"):
# [search]
# trials = 10
"""

WIDTH = 118


def run_toml(plan: Plan, candidate: Candidate, cohort: CohortOverride) -> str:
    """A file for `equimetric train`: the run of a candidate, whose test figures are those of the fitted model."""
    values = with_cohort(plan.run_values(candidate), cohort)
    load_config(values, RunConfig)
    comments = KEY_COMMENTS if candidate.trains else {**KEY_COMMENTS, "method": NO_TRAINING}
    header = RUN_HEADER.format(file=PLAN, part=plan.parts.calibration, far=plan.far, cohort=cohort_options(cohort))
    return comment(header + PRIVATE) + "\n" + add_comments(values, comments)


def study_toml(plan: Plan, cohort: CohortOverride) -> str:
    """A file for `equimetric compare`: all base objectives with their defaults, under the plan's conditions."""
    values = with_cohort(plan.run_values(plan.candidates[0]), cohort)
    del values["method"], values["seed"]
    methods: dict[str, Any] = {candidate.method: {} for candidate in plan.candidates}
    header_values = {"name": STUDY_NAME, "seeds": [0, 1, 2], "baselines": [candidate.method for candidate in UNTRAINED]}
    study = {**header_values, **values, "methods": methods}
    load_config(study, StudyConfig)
    header = STUDY_HEADER.format(file=STUDY, name=STUDY_NAME)
    return comment(header + PRIVATE) + "\n" + add_comments(study, KEY_COMMENTS) + TUNING


def cohort_options(cohort: CohortOverride) -> str:
    """The options of a command that normalises calibration classes as the fit did; '' where it did not."""
    if cohort.part == "none":
        return ""
    return f" --cohort {cohort.part} --cohort-strength {cohort.strength:g} --cohort-form {cohort.form}"


def with_cohort(values: dict[str, Any], cohort: CohortOverride) -> dict[str, Any]:
    """The configuration with the cohort that was decided on, in place of one to be chosen."""
    evaluation = {key: value for key, value in values["evaluation"].items() if key != "cohort"}
    if cohort.part != "none":
        evaluation["cohort"] = {"part": cohort.part, "form": cohort.form, "strength": cohort.strength}
    return {**values, "evaluation": evaluation}


def comment(text: str) -> str:
    """Lines that begin with #."""
    return "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())


def add_comments(values: dict[str, Any], key_comments: Mapping[str, str]) -> str:
    """TOML with a comment above the keys and tables that have one; lists of numbers in one line."""
    import tomli_w

    text = tomli_w.dumps(without_none(values))
    text = re.sub(r"\[\n((?: +[\d.]+,\n)+)\]", lambda match: f"[{' '.join(match[1].split()).rstrip(',')}]", text)
    comments = {f"{key} =": sentence for key, sentence in key_comments.items()}
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        if line.startswith("["):
            # From the first table on, keys are those of tables.
            comments = {
                key: sentence for key, sentence in TABLE_COMMENTS.items() if wrap_comment(sentence) not in lines
            }
        lines += [wrap_comment(sentence) for start, sentence in comments.items() if line.startswith(start)]
        lines.append(line)
    return "".join(lines)


def wrap_comment(text: str) -> str:
    """A sentence as a comment, wrapped to a readable width."""
    return comment(textwrap.fill(text, WIDTH))
