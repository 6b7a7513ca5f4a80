"""The report as one self-contained HTML page: every script, style and image is inside, nothing reaches the network."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from equimetric.errors import EquimetricError
from equimetric.files import write_atomically
from equimetric.report.bundle import content_policy, page_scripts, page_style
from equimetric.report.change_table import change_table
from equimetric.report.class_table import class_table
from equimetric.report.fault_tables import fault_tables
from equimetric.report.ledger_table import ledger_table
from equimetric.report.member_tables import cost_table, member_table
from equimetric.report.metric_cells import metric_column, value_cell
from equimetric.report.papers_versus_reality import accuracy_table, improvement_table
from equimetric.report.probe_tables import probe_tables, shift_table
from equimetric.report.run_links import RunLinks, links_to_runs
from equimetric.report.search_table import search_table
from equimetric.report.section import RenderedSection, render_section, render_template, sections_for
from equimetric.report.sections.training import training_table
from equimetric.report.study_literature import published_table, study_accuracies, study_improvements
from equimetric.report.table_data import PlainTable, TableCell, TableColumn, TableRow
from equimetric.report.tables import TABLE_FORMATS, plain_table
from equimetric.report.threshold_table import threshold_table
from equimetric.studies.embeddings_record import EmbeddingsRecord
from equimetric.studies.records import StudyRecord
from equimetric.studies.table import comparison_table, joined_table, sweep_tables

__all__ = ["record_tables", "render_html", "render_page", "study_tables", "write_report", "write_tables"]

SCRIPTS_MARK = "<!-- scripts -->\n"
CHART_MARK = '<figure class="chart"'


def write_report(record: StudyRecord | EmbeddingsRecord, destination: Path, *, study: Path | None = None) -> Path:
    """Write index.html, and table.md, table.csv and table.tex, into a folder; returns the path of the page.

    A study with folds, sweeps or a search has further tables. Each file appears whole or not at all, and the same study
    gives the same bytes. `study` is the folder below which the runs are, so that the page can link to them.
    """
    reachable = isinstance(record, StudyRecord) and any(run.folder for run in record.runs)
    links = links_to_runs(study, destination) if study is not None and reachable else None
    write_tables(record, destination, ("md", "csv", "tex"))
    (page,) = _write_files(destination, {"index.html": render_html(record, links)})
    return page


def write_tables(record: StudyRecord | EmbeddingsRecord, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write every table of a record into a folder, as NAME.FORMAT for each of the formats; returns the paths."""
    tables = record_tables(record).items()
    return _write_files(
        folder, {f"{name}.{form}": TABLE_FORMATS[form](table) for name, table in tables for form in formats}
    )


def _write_files(folder: Path, contents: Mapping[str, str]) -> list[Path]:
    try:
        for name, text in contents.items():
            write_atomically(folder / name, text)
    except OSError as error:
        raise EquimetricError(
            f"cannot write the report to {folder} ({error.strerror}); choose a writable folder"
        ) from error
    return [folder / name for name in contents]


def record_tables(record: StudyRecord | EmbeddingsRecord) -> dict[str, PlainTable]:
    """All tables of a record by the name of their files."""
    return study_tables(record) if isinstance(record, StudyRecord) else embeddings_tables(record)


def embeddings_tables(record: EmbeddingsRecord) -> dict[str, PlainTable]:
    """The metrics of embeddings, their thresholds, and what they retrieve wrongly."""
    tables = {"table": metric_table(record)}
    thresholds = None if record.profile is None else threshold_table(record.title, {record.name: record.profile})
    if thresholds is not None:
        tables["thresholds"] = thresholds
    return tables | fault_tables(record)


def metric_table(record: EmbeddingsRecord) -> PlainTable:
    """The metrics of embeddings, with the ends of their intervals where any metric has one."""
    ends = ("low", "high") if record.intervals else ()
    columns = (TableColumn("metric", is_text=True), *(TableColumn(name) for name in ("value", *ends)))
    rows = []
    for metric, value in record.metrics.items():
        found = record.intervals.get(metric, (None, None))
        cells = [value_cell(name, metric, one) for name, one in zip(("value", *ends), (value, *found), strict=False)]
        rows.append(TableRow((TableCell(metric_column(metric).heading, {"metric": metric}), *cells)))
    note = "Low and high are the ends of the 95 % interval, from resampling whole classes."
    return PlainTable(record.title, columns, tuple(rows), (note,) if record.intervals else ())


def study_tables(study: StudyRecord) -> dict[str, PlainTable]:
    """All tables of a study by the name of their files: the comparison, joined folds, points of sweeps, and so on."""
    tables = {"table": plain_table(comparison_table(study))}
    joined, tuned = joined_table(study), search_table(study)
    if joined is not None:
        tables["joined"] = plain_table(joined)
    for point, table in sweep_tables(study).items():
        tables[f"table-{''.join(c if c.isalnum() else '-' for c in point)}"] = plain_table(table)
    changed = change_table(study)
    if changed is not None:
        tables["changes"] = changed
    shifted = shift_table(study)
    if shifted is not None:
        tables["shift"] = shifted
    tables |= {f"probe-{name}": table for name, table in probe_tables(study).items()}
    if tuned is not None:
        tables["tuning"] = tuned
    for name, further in (("members", member_table(study)), ("cost", cost_table(study))):
        if further is not None:
            tables[name] = further
    for name, further in paper_tables(study).items():
        if further is not None:
            tables[name] = further
    accuracies = study_accuracies(study)
    if accuracies:
        tables["accuracy"] = accuracy_table(accuracies)
    improvements = study_improvements(study)
    tables |= {
        f"improvement-{base}": improvement_table([one for one in improvements if one.base == base], base)
        for base in dict.fromkeys(one.base for one in improvements)
    }
    return tables


def paper_tables(study: StudyRecord) -> dict[str, PlainTable | None]:
    """What sections of the page show in ways of their own, as tables: thresholds, training, fairness, classes."""
    runs = {row: study.profiles[row].run for row in study.methods if row in study.profiles}
    trained = training_table(study)
    return {
        "thresholds": threshold_table(study.title, runs),
        "training": trained if trained.rows else None,
        "ledger": ledger_table(study),
        "classes": class_table(study),
        "published": published_table(study),
    }


def render_html(record: StudyRecord | EmbeddingsRecord, links: RunLinks | None = None) -> str:
    """The whole page as text: all sections that can show the record, in their order; with links to runs, if any."""
    rendered = [render_section(section, record) for section in sections_for(record)]
    sections = [shown for shown in rendered if shown is not None]
    kind = name_kind(record)
    source = "these embeddings" if kind == "embeddings" else f"the records of this {kind}"
    footer = f"Written by Equimetric from {source}. The page is complete: it opens without a network."
    return render_page(kind=kind, name=record.name, title=record.title, sections=sections, footer=footer, links=links)


def render_page(
    *,
    kind: str,
    name: str,
    title: str,
    sections: Sequence[RenderedSection],
    footer: str,
    links: RunLinks | None = None,
) -> str:
    """A page of sections as text; `kind` and `name` stand above its title."""
    from markupsafe import Markup

    template = (files("equimetric.report") / "assets" / "page.html.jinja").read_text(encoding="utf-8")
    scripts, style = page_scripts(figures=any(CHART_MARK in shown.body for shown in sections)), page_style()
    data = {"kind": kind, "name": name, "title": title, "sections": sections, "footer": footer, "links": links}
    policy = Markup(content_policy(scripts, style))
    page = render_template(template, policy=policy, style=Markup(style), **data)
    # Behind the rest, because a policy knows a script by its exact characters.
    last = "".join(f"<script>\n{script}\n</script>\n" for script in scripts)
    return str(page).replace(SCRIPTS_MARK, last) + "\n"


def name_kind(record: StudyRecord | EmbeddingsRecord) -> str:
    """What a page is about."""
    if isinstance(record, EmbeddingsRecord):
        return "embeddings"
    return "study" if len(record.runs) > 1 else "run"
