"""The model card: README.md with front matter, as the Hugging Face hub shows it, filled from the run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from equimetric.calibration import Certificate
from equimetric.deployment.embedder import AnyCertificate
from equimetric.deployment.preprocessing import Preprocessing
from equimetric.deployment.runtimes import Arithmetic
from equimetric.errors import EquimetricError
from equimetric.escaping import one_line
from equimetric.evaluation import Evaluation
from equimetric.runs.evaluation import LabelledEmbeddings, OpenRun, evaluate_defined

__all__ = ["CardFacts", "write_card"]

CLASSES_SHOWN = 10


@dataclass(frozen=True, eq=False)
class CardFacts:
    """Contents of a model card.

    samples   embeddings of the part that the model is measured on; None where it is not measured
    name      name of the model
    files     names of the other files
    """

    run: OpenRun
    part: str
    samples: LabelledEmbeddings | None
    certificate: AnyCertificate | None
    preprocessing: Preprocessing
    arithmetic: Arithmetic
    dim: int
    licence: str
    name: str
    files: Sequence[str]


def write_card(facts: CardFacts) -> str:
    """The text of README.md."""
    scores = None if facts.samples is None else evaluate_defined(facts.samples, facts.run.config.evaluation)[0]
    sections = [
        front_matter(facts),
        f"# {one_line(facts.name)}\n",
        *use_section(facts),
        *data_section(facts),
        *training_section(facts),
        *metrics_section(facts, scores),
        *failures_section(facts, scores),
        *threshold_section(facts),
    ]
    return "\n".join(sections).rstrip() + "\n"


def front_matter(facts: CardFacts) -> str:
    """The fields that the hub reads."""
    tags = ["metric-learning", "image-embeddings", "equimetric"]
    fields = {
        "license": facts.licence,
        "library_name": "equimetric",
        "pipeline_tag": "image-feature-extraction",
        "tags": tags,
    }
    # JSON is YAML, and quotes whatever needs it.
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    return "\n".join(["---", *lines, "---", ""])


def use_section(facts: CardFacts) -> Iterator[str]:
    """Purpose and usage."""
    unit = " of unit length" if facts.run.model.learner.unit_length else ""
    yield (
        f"Turns an image into {facts.dim} numbers{unit}: images of one class lie close together, also of classes that "
        "it was not trained on.\n"
    )
    yield f"```python\nimport equimetric\n\nmodel = equimetric.load({facts.name!r})"
    yield 'embeddings = model.embed(["a.jpg", "b.jpg"])'
    if isinstance(facts.certificate, Certificate):
        yield 'same = model.same("a.jpg", "b.jpg")  # at the certified threshold'
    yield "```\n"
    size = facts.preprocessing.size
    yield (
        f"Input: {facts.preprocessing.description}; uint8 (B, {facts.preprocessing.channels}, {size}, {size}). "
        f"Arithmetic: {facts.arithmetic}. Files: {', '.join(facts.files)}.\n"
    )


def data_section(facts: CardFacts) -> Iterator[str]:
    """The training and test data."""
    data = facts.run.data
    dataset = data.dataset
    yield "## Data\n"
    yield (
        f"{one_line(dataset.name)}: {len(dataset)} images of {dataset.classes} classes, sha256 "
        f"{data.fingerprint[:12]}…; parts share no class.\n"
    )
    yield "| part | images | classes |\n|---|---:|---:|"
    for part, rows in data.split.parts().items():
        yield f"| {part} | {len(rows)} | {len(torch.unique(dataset.labels[rows]))} |"
    yield ""


def training_section(facts: CardFacts) -> Iterator[str]:
    """The training settings."""
    config, result = facts.run.config, facts.run.model.result
    trunk = config.model.backbone + (" (frozen)" if config.model.frozen else "")
    weights = f", initial weights {config.model.pretrained}" if config.model.pretrained else ""
    yield "## Training\n"
    yield f"* method `{config.method}`, learner `{config.learner.name}`, seed {config.seed}"
    yield f"* network `{trunk}`{weights}, {result.parameters:,} parameters"
    yield f"* {result.steps} steps, the weights of step {result.best_step} kept, by the validation classes"
    yield f"* classes: {config.data.describe_split()}\n"
    for note in result.notes:
        yield f"> {one_line(note)}\n"


def metrics_section(facts: CardFacts, scores: Evaluation | None) -> Iterator[str]:
    """The metrics with intervals."""
    yield "## Metrics\n"
    if scores is None:
        yield "Not measured: exported without a certificate.\n"
        return
    exposure = "which it was trained on" if facts.part == "train" else "which it was not trained on"
    cohort = facts.samples.cohort if facts.samples is not None else None
    normalized = "" if cohort is None or cohort.strength == 0 else " Similarities are normalised by the cohort."
    yield (
        f"On the {len(scores.class_labels)} {facts.part} classes, {exposure}, with 95 % intervals (whole classes "
        f"resampled).{normalized}\n"
    )
    yield "| metric | value | 95 % interval |\n|---|---:|---:|"
    for name, value in scores.items():
        yield f"| {name} | {value:.4g} | {interval_text(scores, name)} |"
    yield ""


def interval_text(scores: Evaluation, name: str) -> str:
    """'0.4 … 0.6', or a dash where a metric cannot be resampled by class."""
    try:
        interval = scores.interval(name)
    except EquimetricError:
        return "–"
    return f"{interval.low:.4g} … {interval.high:.4g}"


def failures_section(facts: CardFacts, scores: Evaluation | None) -> Iterator[str]:
    """The classes for which it works worst."""
    if scores is None or facts.samples is None:
        return
    names_by_priority = (facts.run.config.evaluation.selected_by, *scores.score_per_class)
    metric = next((name for name in names_by_priority if name in scores.score_per_class), None)
    by_class = {label: values.get(metric, math.nan) for label, values in scores.per_class.items()} if metric else {}
    ranked = sorted((value, str(label)) for label, value in by_class.items() if not math.isnan(value))
    names = facts.samples.class_names
    yield "## Where it fails\n"
    if ranked:
        yield f"| class | {metric} |\n|---|---:|"
        for value, label in ranked[:CLASSES_SHOWN]:
            yield f"| {cell(names[int(label)] if label.isdecimal() else label)} | {value:.3g} |"
        yield ""
    if isinstance(facts.certificate, Certificate) and facts.certificate.worst_classes:
        yield "At the certified threshold, held-out classes, worst first:\n"
        yield "| class | FAR | FRR | |\n|---|---:|---:|---|"
        for name, rates in list(facts.certificate.worst_classes.items())[:CLASSES_SHOWN]:
            above = "above the target rate with confidence" if rates.violates else ""
            yield f"| {cell(str(name))} | {rates.far:.3g} | {rates.frr:.3g} | {above} |"
        yield ""


def cell(text: str) -> str:
    """A name inside a table."""
    return one_line(text).replace("|", "\\|")


def threshold_section(facts: CardFacts) -> Iterator[str]:
    """The guarantees of the threshold."""
    yield "## Threshold\n"
    if facts.certificate is None:
        yield "No certificate: nothing is promised about any threshold.\n"
        return
    yield f"```text\n{facts.certificate}\n```\n"
    yield (
        "It holds for this model, preprocessing and arithmetic, and for classes and images such as those it was "
        "calibrated on. `equimetric verify` says whether it holds on your machine."
    )
