"""The report as one self-contained HTML page: no script, no font, no network."""

from importlib.resources import files
from pathlib import Path

from equimetric.errors import EquimetricError
from equimetric.escaping import printable
from equimetric.files import write_atomically
from equimetric.report.section import SECTIONS, render_section, render_template
from equimetric.report.tables import to_csv, to_latex, to_markdown
from equimetric.studies.records import StudyRecord
from equimetric.studies.table import comparison_table

__all__ = ["render_html", "write_report"]


def write_report(study: StudyRecord, destination: Path) -> Path:
    """Write index.html, table.md, table.csv and table.tex into a folder; returns the path of the page.

    Each file appears whole or not at all, and the same study gives the same bytes.
    """
    table = comparison_table(study)
    contents = {
        "table.md": to_markdown(table),
        "table.csv": to_csv(table),
        "table.tex": to_latex(table),
        "index.html": render_html(study),
    }
    try:
        for name, text in contents.items():
            write_atomically(destination / name, text)
    except OSError as error:
        raise EquimetricError(
            f"cannot write the report to {destination} ({error.strerror}); choose a writable folder"
        ) from error
    return destination / "index.html"


def render_html(study: StudyRecord) -> str:
    """The whole page as text: all registered sections in their order."""
    from markupsafe import Markup

    assets = files("equimetric.report") / "assets"
    template, style = ((assets / name).read_text(encoding="utf-8") for name in ("page.html.jinja", "report.css"))
    ordered = sorted(SECTIONS.values(), key=lambda section: (section.order, section.name))
    sections = [shown for section in ordered if (shown := render_section(section, study)) is not None]
    return printable(render_template(template, study=study, style=Markup(style), sections=sections)) + "\n"
