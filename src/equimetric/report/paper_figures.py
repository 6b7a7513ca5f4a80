"""Figures of a record that its page draws in another way, which moves: thresholds and the map, for papers."""

from __future__ import annotations

from equimetric.report.fan_figure import fan_figure
from equimetric.report.figure import Figure
from equimetric.report.map_figure import map_figure
from equimetric.report.sections.explorer import class_names, compared_methods
from equimetric.studies.embeddings_record import EmbeddingsRecord
from equimetric.studies.records import StudyRecord
from equimetric.studies.table import comparison_table

__all__ = ["paper_figures"]


def paper_figures(record: object) -> list[Figure]:
    """A fan for each method that the page compares at first, and the map of the first method; empty without them."""
    if isinstance(record, EmbeddingsRecord):
        run = record.profile
        figures = [] if run is None else [fan_figure(record.name, run, 1)]
    elif isinstance(record, StudyRecord):
        figures = study_figures(record)
    else:
        figures = []
    return [figure for figure in figures if figure is not None]


def study_figures(study: StudyRecord) -> list[Figure | None]:
    """The same of the methods of a study."""
    ranked = sorted(comparison_table(study).rows, key=lambda row: row.kind == "baseline")
    runs = {row.method: study.profiles[row.method].run for row in ranked if row.method in study.profiles}
    with_thresholds = [row for row, run in runs.items() if run.thresholds is not None]
    shown = compared_methods(study, with_thresholds) if with_thresholds else []
    figures = [fan_figure(row, runs[row], number) for number, row in enumerate(shown, start=1)]
    mapped = next((row for row, run in runs.items() if run.map is not None), None)
    images = study.images
    if mapped is None or images is None:
        return figures
    names = class_names(study)
    return [
        *figures,
        map_figure(
            mapped,
            runs[mapped].map,
            lambda row: int(images.labels[row]),
            lambda label: names.get(label, images.class_names[label]),
        ),
    ]
