"""The report as one HTML page that needs nothing beside it: no script, no font, no network."""

import base64
import io
from importlib.resources import files
from pathlib import Path

import numpy as np

from equimetric.errors import EquimetricError
from equimetric.escaping import printable
from equimetric.files import write_atomically
from equimetric.report.figures import interval_plot, validation_curves
from equimetric.report.table import to_csv, to_latex, to_markdown
from equimetric.studies.records import Image, StudyRecord
from equimetric.studies.table import comparison_table

__all__ = ["render_html", "write_report"]

# Pictures are shown at 52 pixels at most; twice that is enough for dense screens and keeps the page small.
_LARGEST_SIDE = 104


def write_report(study: StudyRecord, destination: Path) -> Path:
    """Write index.html, table.md, table.csv and table.tex into a folder; the path of the page is returned.

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
            f"cannot write the report to {destination} ({error.strerror}); choose a folder that can be written to"
        ) from error
    return destination / "index.html"


def render_html(study: StudyRecord) -> str:
    """The whole page as text."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    table = comparison_table(study)
    best_first = sorted(table.rows, key=lambda row: row.kind == "baseline")
    figures = {"intervals": interval_plot(study, table), "curves": validation_curves(study, table)}
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["data_uri"] = _data_uri
    # Long names may break after an underscore; joining escapes the parts.
    environment.filters["breakable"] = lambda name: Markup("_<wbr>").join(name.split("_"))
    environment.tests["enlarged"] = _is_enlarged
    folder = files("equimetric.report") / "templates"
    template = environment.from_string((folder / "report.html.jinja").read_text(encoding="utf-8"))
    page = template.render(
        study=study,
        table=table,
        # Our own style sheet, and SVG whose words matplotlib has escaped: the only text that is not escaped here.
        style=Markup((folder / "report.css").read_text(encoding="utf-8")),
        figures={name: Markup(svg) for name, svg in figures.items() if svg is not None},
        galleries=[(row, study.galleries[row.method]) for row in best_first if row.method in study.galleries],
    )
    return printable(page)


def _data_uri(image: Image) -> str:
    """A picture of shape (C, H, W) as an inline PNG, scaled down where it is larger than it is ever shown."""
    from PIL import Image as Pillow

    picture = Pillow.fromarray(np.ascontiguousarray(image[0] if image.shape[0] == 1 else image.transpose(1, 2, 0)))
    picture.thumbnail((_LARGEST_SIDE, _LARGEST_SIDE), Pillow.Resampling.LANCZOS)
    stream = io.BytesIO()
    picture.save(stream, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


def _is_enlarged(image: Image) -> bool:
    """Whether a picture has so few pixels that they should stay visible as squares when it is shown larger."""
    return bool(max(image.shape[1:]) <= 64)
