"""The report of a fit: one self-contained page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from equimetric.evaluation import format_score
from equimetric.fitting.normalization import describe_normalization
from equimetric.progress import format_seconds
from equimetric.report.page import render_page
from equimetric.report.section import RenderedSection, render_template
from equimetric.report.table_data import PlainTable, TableCell, TableColumn, TableRow
from equimetric.runs.cohorts import cohort_notes
from equimetric.runs.result import RunResult

if TYPE_CHECKING:
    from equimetric.fitting.choice import CandidateChoice
    from equimetric.fitting.fit import FitResult
    from equimetric.fitting.outcome import FitOutcome

__all__ = ["outcome_table", "render_report"]

TABLE = "{{ table | table }}"

TEXT = """
<div class="scroll" role="region" aria-label="The certificate" tabindex="0"><pre>{{ text }}</pre></div>
"""

LIST = "<ul>{% for line in lines %}<li>{{ line }}</li>{% endfor %}</ul>"

USE = """
<pre>$ equimetric verify {{ name }}
$ equimetric embed {{ name }} photos --out embeddings.parquet</pre>
<pre>import equimetric

model = equimetric.load("{{ name }}")
model.embed(["a.jpg", "b.jpg"])
model.same("a.jpg", "b.jpg")  # at the certified threshold</pre>
"""


def render_report(fitted: FitResult, result: RunResult) -> str:
    """The whole page: data, plan, choice, results on the test classes, and the certificate."""
    plan = fitted.plan
    classes = [f"{part} ({len(names)}): {', '.join(names)}" for part, names in plan.parts.fold().lists().items()]
    sections = [
        render_part("results", "Test classes", TABLE, table=outcome_table(fitted.outcome)),
        render_part("threshold", "Threshold", TEXT, text=str(fitted.certificate)),
        render_part("data", "What was found in the data", LIST, lines=list(plan.inspection.describe())),
        render_part("plan", "The plan", LIST, lines=list(plan.describe())),
        render_part("choice", "What validation classes chose", TABLE, table=choice_table(fitted.choice, result)),
        render_part("classes", "Which classes were for what", LIST, lines=classes),
        render_part("use", "How to use it", USE, name=fitted.folder.name),
    ]
    title = f"{fitted.folder.name}: an embedding of {len(plan.inspection.dataset):,} images"
    took = f"Written by Equimetric after {format_seconds(fitted.seconds)}."
    return render_page(kind="fit", name=fitted.folder.name, title=title, sections=sections, footer=took)


def render_part(key: str, title: str, template: str, **data: Any) -> RenderedSection:
    """A section of the page."""
    return RenderedSection(key, title, render_template(title), render_template(template, **data))


def outcome_table(outcome: FitOutcome) -> PlainTable:
    """Raw features and the fitted model on the test classes, and the certified rates below."""
    names = list(outcome.fitted)
    rows = [
        TableRow((TableCell(title), *(TableCell(format_score(name, metrics[name]).strip()) for name in names)))
        for title, metrics in outcome.rows()
    ]
    return PlainTable(
        f"{outcome.classes} test classes, {outcome.images:,} images, opened once",
        (TableColumn("", is_text=True), *map(TableColumn, names)),
        tuple(rows),
        tuple(outcome.sentences()),
    )


def choice_table(choice: CandidateChoice, result: RunResult) -> PlainTable:
    """All candidates with their validation scores, the chosen one in bold."""
    best, names = choice.best, list(choice.best.scores)
    rows = [
        TableRow(
            (
                TableCell(scored.candidate.name),
                *(
                    TableCell(
                        format_score(name, scored.scores[name]).strip(), emphasis="bold" if scored is best else ""
                    )
                    for name in names
                ),
            )
        )
        for scored in choice.candidates
    ]
    columns = (TableColumn("candidate", is_text=True), *map(TableColumn, names))
    return PlainTable("Validation classes, mean of the folds", columns, tuple(rows), choice_notes(choice, result))


def choice_notes(choice: CandidateChoice, result: RunResult) -> tuple[str, ...]:
    """Notes on the choice, and those of the run."""
    chosen = choice.describe()
    notes = [f"{chosen[0].upper()}{chosen[1:]}."]
    if choice.timed_out:
        notes.append("The time for trials was up before all candidates were tried.")
    notes.append(describe_normalization(result.cohort))
    # Those of the cohort speak of the one that the run chose by itself.
    return (*notes, *(note for note in result.notes if note not in cohort_notes(result.cohort)))
