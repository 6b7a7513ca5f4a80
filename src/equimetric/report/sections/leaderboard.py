"""The comparison table: sorted, filtered, and judged against any row that the reader chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any
from urllib.parse import quote

from equimetric.report.section import section
from equimetric.report.study_literature import published_matches
from equimetric.report.table_data import format_number
from equimetric.studies.judgement import Judgement, higher_is_better, judge_study, known_half_width
from equimetric.studies.records import PLAIN, StudyRecord
from equimetric.studies.statistics import RowComparison
from equimetric.studies.table import Cell, Column, ComparisonTable, Row, comparison_table, joined_table

__all__ = ["leaderboard_section", "verdict_data"]

BAR = 88
"""Width of the bar in a cell, in pixels."""
LEADING_METRICS = 3
"""Metrics that are shown at once beside the first, if they are no variants of others."""
ALWAYS_FOLDED = ("time per run", "parameters")
LARGEST_EFFECT = 20
NO_VERDICT = {"verdict": "", "brief": "", "ends": "–", "size": "–", "difference": 0, "effect": 0}

TEMPLATE = """
{% macro bar(drawn) %}
{% if drawn %}
<svg class="bar" width="{{ width }}" height="10" viewBox="0 0 {{ width }} 10" aria-hidden="true">
  {% if drawn.low is not none %}<line x1="{{ drawn.low }}" x2="{{ drawn.high }}" y1="5" y2="5"/>{% endif %}
  {% if drawn.beyond == "left" %}<path d="M0 5 L6 1 V9 Z"/>
  {% elif drawn.beyond == "right" %}<path d="M{{ width }} 5 l-6 -4 v8 Z"/>
  {% else %}<circle cx="{{ drawn.mean }}" cy="5" r="3"/>{% endif %}
</svg>
{% endif %}
{% endmacro %}
{% if not single %}
<form class="controls" hidden>
  <label>Filter by name <input type="search" id="leaderboard-filter" autocomplete="off"></label>
  {% if judged %}
  <label><input type="checkbox" id="leaderboard-tied"> only those tied with the best</label>
  {% endif %}
  {% if folded %}
  <button type="button" id="leaderboard-more" aria-controls="leaderboard-table" aria-expanded="false">{{ folded }} more columns</button>
  {% endif %}
  <span id="leaderboard-count"></span>
</form>
{% endif %}
<div class="scroll wide" role="region" aria-label="{{ "Table of scores" if single else "Scores of all methods" }}" tabindex="0">
<table class="results" id="leaderboard-table">
  <thead>
    <tr>
      <th scope="col" data-sort="text">Method</th>
      {% if judged %}
      <th scope="col" class="chooses"><abbr title="compare all rows with this one">vs</abbr></th>
      {% endif %}
      {% for heading in headings %}
      <th scope="col" data-sort="number" class="number{% if loop.first %} primary{% endif %}{% if heading.secondary %} secondary{% endif %}">
        {{- heading.metric }}{% if heading.percent %} <span class="unit">%</span>{% endif -%}
      </th>
      {% if heading.judged %}
      <th scope="col" data-sort="number">Against <span class="name baseline-name"{% if loop.first %} id="leaderboard-baseline"{% endif %}>{{ table.baseline | breakable }}</span></th>
      {% if untrained %}
      <th scope="col" data-sort="number">Against <span class="name">{{ untrained | breakable }}</span></th>
      {% endif %}
      {% if loop.first %}
      <th scope="col" data-sort="number" class="number"><abbr title="difference in standard deviations over seeds">Effect</abbr></th>
      {% endif %}
      <th scope="col" data-sort="text"><abbr title="rows that share a letter cannot be told apart">Group</abbr></th>
      {% endif %}
      {% endfor %}
      {% if published %}
      <th scope="col">Published †</th>
      {% endif %}
      <th scope="col" data-sort="number" class="number">Runs</th>
      <th scope="col" data-sort="number" class="number secondary">Time per run</th>
      <th scope="col" data-sort="number" class="number secondary">Parameters</th>
    </tr>
  </thead>
  {% for kind, rows in rows | groupby("kind") | reverse %}
  <tbody class="{{ kind }}">
  {% for row in rows %}
    <tr data-row="{{ row.name }}"{% if row.tied %} data-tied{% endif %}>
      <th scope="row" data-value="{{ row.name }}"><span class="name">{{ row.name | breakable }}</span>
        {%- if kind == "baseline" %} <span class="badge">baseline</span>{% endif -%}
      </th>
      {% if judged %}
      <td class="chooses">{% if row.judged %}<input type="radio" name="baseline" value="{{ row.name }}" aria-label="compare all rows with {{ row.name }}"{% if row.name == table.baseline %} checked{% endif %} disabled>{% endif %}</td>
      {% endif %}
      {% for cell in row.cells %}
      <td class="number{% if loop.first %} primary{% endif %}{% if headings[loop.index0].secondary %} secondary{% endif %}" data-value="{{ cell.value }}">
        {%- if cell.emphasis %}<strong class="{{ cell.emphasis }}">{{ cell.mean }}</strong>
        {%- else %}{{ cell.mean }}{% endif %}<span class="half">{{ cell.half }}</span>
        {%- if cell.fewer %} <span class="unit">n = {{ cell.fewer }}</span>{% endif %}
        {{ bar(cell.bar) }}
        {%- if judged and loop.first %}<span class="brief verdict" aria-hidden="true">{{ row.verdict.brief }}</span>{% endif -%}
      </td>
      {% if cell.verdicts %}
      {% for found in cell.verdicts %}
      <td class="{% if loop.first %}against {% endif %}verdict" data-metric="{{ cell.metric }}" data-verdict="{{ found.verdict }}" data-value="{{ found.difference }}">{{ found.brief }}{{ found.ends }}</td>
      {% endfor %}
      {% if loop.first %}
      <td class="effect number" data-value="{{ row.verdict.effect }}" title="{{ row.verdict.get("exact", "") }}">{{ row.verdict.size }}</td>
      {% endif %}
      <td class="group" data-value="{{ cell.group }}">{{ cell.group or "–" }}</td>
      {% endif %}
      {% endfor %}
      {% if published %}
      <td class="published">{% for one in row.published %}<span>{{ one }}</span>{% else %}–{% endfor %}</td>
      {% endif %}
      <td class="number{% if row.failed %} warning{% endif %}" data-value="{{ row.done }}">
        {%- if row.folders %}<details class="runs"><summary>{{ row.runs }}</summary>
        {% for run in row.folders %}<span>seed {{ run.text }} <span class="name" data-run="{{ run.path }}">{{ run.folder }}</span></span>{% endfor %}</details>
        {%- else %}{{ row.runs }}{% endif -%}
      </td>
      <td class="number secondary" data-value="{{ row.seconds }}">{{ row.duration }}</td>
      <td class="number secondary" data-value="{{ row.parameters }}">{{ row.size }}</td>
    </tr>
  {% endfor %}
  </tbody>
  {% endfor %}
</table>
</div>
<ul class="notes">
  {% if judged %}
  <li class="interactive" hidden>Sort by a heading; choose in the column “vs” which row the others are judged against; all verdicts are of one family.</li>
  {% endif %}
  {% for before, name, after in footnotes %}
  <li>{{ before }}{% if name %}<span class="baseline-name">{{ name }}</span>{% endif %}{{ after }}</li>
  {% endfor %}
  {% if published %}
  <li>† From papers, measured under the conditions of each paper, not of this study: a mark of what was claimed, not a comparison.</li>
  {% endif %}
  {% if reachable %}
  <li>Below the number of runs are their folders inside that of the study, each linked to its results. <code>equimetric report FOLDER</code> writes the page of one run.</li>
  {% endif %}
  <li>The same table was written as table.md, table.csv and table.tex.</li>
</ul>
{{ verdicts | json("leaderboard") }}
"""  # noqa: E501


TITLE = "{{ 'Scores' if single else 'Leaderboard' }}"


@section("leaderboard", title=TITLE, link=TITLE, order=10, template=TEMPLATE)
def leaderboard_section(study: StudyRecord) -> Mapping[str, Any]:
    """Rows with intervals drawn in their cells, and the verdicts against every row."""
    table, joined = comparison_table(study), joined_table(study)
    judgement = judge_study(study)
    verdicts = verdict_data(judgement, table)
    published = published_texts(study)
    headings = [
        heading(place, column, judged=bool(table.verdict_columns(column))) for place, column in enumerate(table.columns)
    ]
    if joined is not None:
        name = f"{joined.columns[0].metric}, folds joined"
        headings.insert(1, {"metric": name, "percent": joined.columns[0].percent, "secondary": False, "judged": False})
    return {
        "table": table,
        "headings": headings,
        "folded": sum(one["secondary"] for one in headings) + len(ALWAYS_FOLDED),
        "footnotes": [part_at_baseline(footnote, table.baseline) for footnote in table.footnotes],
        "rows": leaderboard_rows(study, table, joined, published),
        "judged": table.baseline is not None,
        "untrained": next(iter(table.references[1:]), ""),
        "published": published,
        "reachable": any(run.folder for run in study.runs),
        "verdicts": verdicts,
        "width": BAR,
    }


def heading(place: int, column: Column, *, judged: bool = False) -> dict[str, Any]:
    """What the template shows of a metric's heading; whether a narrow table leaves the column out."""
    name = column.metric
    variant = name.endswith(PLAIN) or (name.startswith("opis") and name != "opis")
    secondary = place > 0 and (variant or place > LEADING_METRICS)
    return {"metric": name, "percent": column.percent, "secondary": secondary and not judged, "judged": judged}


def part_at_baseline(footnote: str, baseline: str | None) -> tuple[str, str, str]:
    """A footnote before, at and after the name of the baseline, which changes with the reader's choice."""
    before, mark, after = footnote.partition(f"“vs {baseline}”")
    # The page's own columns are called otherwise than those of the text formats.
    after = after.replace("“vs ", "“Against ")
    return (f"{before}“Against ", baseline or "", f"”{after}") if mark else (footnote, "", "")


def leaderboard_rows(
    study: StudyRecord,
    table: ComparisonTable,
    joined: ComparisonTable | None,
    published: Mapping[str, Sequence[str]],
) -> list[dict[str, Any]]:
    """What the template shows of every row."""
    cells = {row.method: list(row.cells) for row in table.rows}
    joined_cells = {row.method: row.cells[0] for row in joined.rows} if joined is not None else {}
    # Bars compare the methods; baselines far away would press them together.
    compared = [row.method for row in table.rows if row.kind == "trained"] or list(cells)
    spans = [cell_span([cells[method][place] for method in compared]) for place in range(len(table.columns))]
    joined_span = cell_span([joined_cells.get(method) for method in compared])
    rows = []
    for row in table.rows:
        row_cells = [
            cell_data(table, column, cell, span, row) | judged_cell(table, column, row)
            for column, cell, span in zip(table.columns, cells[row.method], spans, strict=True)
        ]
        if joined is not None:
            # Its verdicts are of another family, that of the table of joined folds.
            joined_cell = cell_data(table, joined.columns[0], joined_cells.get(row.method), joined_span, row)
            row_cells.insert(1, joined_cell)
        rows.append(
            {
                **row_entry(row),
                "judged": study.primary_metric in row.groups,
                # The answer is about the first metric: a tie in another one does not make a row one of the best.
                "tied": study.primary_metric in row.emphasis,
                "cells": row_cells,
                "verdict": row_cells[0]["verdicts"][0] if row_cells[0]["verdicts"] else NO_VERDICT,
                "published": published.get(row.method, ()),
                "folders": run_folders(study, row.method),
            }
        )
    return rows


def row_entry(row: Row) -> dict[str, Any]:
    """What the template shows of a row beside its scores."""
    return {
        "name": row.method,
        "kind": row.kind,
        "runs": row.runs,
        "done": row.done,
        "failed": row.failed,
        "seconds": row.seconds or 0,
        "duration": row.duration,
        "parameters": row.parameters or 0,
        "size": row.size,
    }


def judged_cell(table: ComparisonTable, column: Column, row: Row) -> dict[str, Any]:
    """Emphasis, letters and verdicts of a cell, those against the study's baseline first."""
    found = [row.verdicts.get((column.metric, reference)) for _, reference in table.verdict_columns(column)]
    return {
        "metric": column.metric,
        "emphasis": row.emphasis.get(column.metric, ""),
        "group": row.groups.get(column.metric, ""),
        "verdicts": [NO_VERDICT if one is None else describe_comparison(one, column) for one in found],
    }


def cell_span(cells: Sequence[Cell | None]) -> tuple[float, float]:
    """The lowest and the highest end of a column's intervals."""
    ends = [end for cell in cells if cell is not None for end in interval_ends(cell)]
    return (min(ends), max(ends)) if ends else (0.0, 0.0)


def interval_ends(cell: Cell) -> tuple[float, float]:
    """Lower and upper end; the mean twice where there is no interval."""
    width = known_half_width(cell)
    width = width if isfinite(width) else 0.0
    return cell.mean - width, cell.mean + width


def cell_data(
    table: ComparisonTable, column: Column, cell: Cell | None, span: tuple[float, float], row: Row
) -> dict[str, Any]:
    """Number, half width, and the bar of a cell."""
    empty: dict[str, Any] = {
        "mean": "–",
        "half": "",
        "value": "",
        "fewer": None,
        "bar": None,
        "emphasis": "",
        "verdicts": (),
    }
    if cell is None:
        return empty
    low, high = span

    def scale(value: float) -> float:
        place = 4 + (BAR - 8) * (value - low) / (high - low)
        return round(min(max(place, 1.0), BAR - 1.0), 1)

    drawn = None
    if isfinite(cell.mean) and high > low:
        ends = interval_ends(cell)
        known = ends[1] > ends[0]
        low_end, high_end = (scale(ends[0]), scale(ends[1])) if known else (None, None)
        beyond = "left" if cell.mean < low else "right" if cell.mean > high else ""
        drawn = {"mean": scale(cell.mean), "low": low_end, "high": high_end, "beyond": beyond}
    return {
        **empty,
        "mean": column.number(cell.mean),
        "half": table.half_width(column, cell),
        "value": cell.mean,
        "fewer": table.fewer_seeds(row, cell),
        "bar": drawn,
    }


def verdict_data(judgement: Judgement, table: ComparisonTable) -> dict[str, Any]:
    """For every row that others can be judged against: the verdict, difference and effect size of each other row.

    `against` are those by the first metric, `also` those by others.
    """
    judged = [column for column in table.columns if column.metric in table.judged]
    by_metric = {column.metric: verdicts_by_row(judgement, column) for column in judged}
    return {
        "baseline": table.baseline,
        "higher": higher_is_better(judgement.metric),
        "against": by_metric.pop(judgement.metric, {}),
        "also": by_metric,
    }


def verdicts_by_row(judgement: Judgement, column: Column) -> dict[str, dict[str, dict[str, Any]]]:
    """Chosen row → other row → the verdict on it by one metric."""
    found = judgement.comparisons[column.metric]
    return {
        chosen: {row: describe_comparison(found.between(row, chosen), column) for row in found.rows if row != chosen}
        for chosen in found.rows
    }


def describe_comparison(one: RowComparison, column: Column) -> dict[str, Any]:
    """'better +1.2 (0.4 to 2.0)', with plain numbers for sorting and drawing."""
    scale, decimals = column.scale, column.decimals
    low, mean, high = (scale * end for end in (one.low, one.interval.mean, one.high))
    ends = (
        f" ({format_number(low, decimals, signed=True)}\u00a0to\u00a0{format_number(high, decimals, signed=True)})"
        if isfinite(low) and isfinite(high)
        else ""
    )
    size = one.effect.standardized
    known = isfinite(size)
    return {
        "verdict": one.verdict,
        "brief": column.verdict_text(one),
        "ends": ends,
        "difference": float(f"{mean:.4g}"),
        "effect": float(f"{size:.4g}") if known else 0,
        "size": format_effect_size(size) if known else "–",
        # There are many pairs of rows: only those whose size is not written out have its number.
        **({"exact": format_number(size, 1, signed=True)} if known and abs(size) > LARGEST_EFFECT else {}),
    }


def format_effect_size(size: float) -> str:
    """With its sign; '> 20' and '< −20' beyond, where seeds hardly differ and the number says nothing."""
    if abs(size) <= LARGEST_EFFECT:
        return format_number(size, 1, signed=True)
    return f"> {LARGEST_EFFECT}" if size > 0 else f"< −{LARGEST_EFFECT}"


def run_folders(study: StudyRecord, method: str) -> list[dict[str, str]]:
    """The folders of a row's runs inside that of the study, with the URL of the results there, which browsers show."""
    return [
        {
            "folder": run.folder,
            "path": f"{quote(run.folder)}/result.json",
            "text": f"{run.seed}, fold {run.fold}" if run.fold > 0 else str(run.seed),
        }
        for run in study.runs_of(method, "done")
        if run.folder
    ]


def published_texts(study: StudyRecord) -> dict[str, list[str]]:
    """Row → published values of the same method, data and metric, with their papers."""
    texts: dict[str, list[str]] = {}
    for match in published_matches(study):
        if match["published"] is not None:
            text = f"{match['metric']} {match['published']:.4g} ({match['paper']})"
            texts.setdefault(match["row"], []).append(text)
    return texts
