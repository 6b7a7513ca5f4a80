"""The report as one self-contained HTML page: no script, no font, no network."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from equimetric.errors import EquimetricError
from equimetric.escaping import printable
from equimetric.files import write_atomically
from equimetric.report.change_table import change_table
from equimetric.report.member_tables import cost_table, member_table
from equimetric.report.papers_versus_reality import improvement_table
from equimetric.report.probe_tables import probe_tables, shift_table
from equimetric.report.search_table import search_table
from equimetric.report.section import SECTIONS, RenderedSection, render_section, render_template
from equimetric.report.study_literature import published_table, study_improvements
from equimetric.report.table_data import PlainTable
from equimetric.report.tables import plain_table, to_csv, to_latex, to_markdown
from equimetric.studies.records import StudyRecord
from equimetric.studies.table import comparison_table, joined_table, sweep_tables

__all__ = ["render_html", "render_page", "study_tables", "write_report"]


def write_report(study: StudyRecord, destination: Path) -> Path:
    """Write index.html, and table.md, table.csv and table.tex, into a folder; returns the path of the page.

    A study with folds, sweeps or a search has further tables. Each file appears whole or not at all, and the same study
    gives the same bytes.
    """
    contents: dict[str, str] = {}
    for name, table in study_tables(study).items():
        contents |= {f"{name}.md": to_markdown(table), f"{name}.csv": to_csv(table), f"{name}.tex": to_latex(table)}
    contents["index.html"] = render_html(study)
    try:
        for name, text in contents.items():
            write_atomically(destination / name, text)
    except OSError as error:
        raise EquimetricError(
            f"cannot write the report to {destination} ({error.strerror}); choose a writable folder"
        ) from error
    return destination / "index.html"


def study_tables(study: StudyRecord) -> dict[str, PlainTable]:
    """All tables of a study by the name of their files: the comparison, joined folds, points of sweeps, tuning."""
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
    published = published_table(study)
    if published is not None:
        tables["published"] = published
    improvements = study_improvements(study)
    tables |= {
        f"improvement-{base}": improvement_table([one for one in improvements if one.base == base], base)
        for base in dict.fromkeys(one.base for one in improvements)
    }
    return tables


def render_html(study: StudyRecord) -> str:
    """The whole page as text: all registered sections in their order."""
    ordered = sorted(SECTIONS.values(), key=lambda section: (section.order, section.name))
    sections = [shown for section in ordered if (shown := render_section(section, study)) is not None]
    footer = "Written by Equimetric from the run records of this study."
    return render_page(kind="study", name=study.name, title=study.title, sections=sections, footer=footer)


def render_page(*, kind: str, name: str, title: str, sections: Sequence[RenderedSection], footer: str) -> str:
    """A page of sections as text; `kind` and `name` stand above its title."""
    from markupsafe import Markup

    assets = files("equimetric.report") / "assets"
    template, style = ((assets / file).read_text(encoding="utf-8") for file in ("page.html.jinja", "report.css"))
    data = {"kind": kind, "name": name, "title": title, "sections": sections, "footer": footer}
    return printable(render_template(template, style=Markup(style), **data)) + "\n"
