"""What methods retrieve wrongly, and where their test images lie: galleries of faults, and a map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equimetric.escaping import printable
from equimetric.report.page_budget import image_byte_budget
from equimetric.report.pictures import Thumbnails
from equimetric.report.retrieval_data import collect_rows, retrieval_faults
from equimetric.report.section import section
from equimetric.studies.profiles import MethodProfile
from equimetric.studies.records import StudyRecord
from equimetric.studies.table import comparison_table

__all__ = ["faults_section"]

GRID = 1000

TEMPLATE = """
<p class="lead">Worst first: queries whose neighbours are most often of another class, the classes that are retrieved worst, classes that are
taken for one another, images that turn up everywhere, and pairs of different classes that lie closest together. Of the first seed.</p>
<noscript><p class="empty">The galleries need JavaScript.</p></noscript>
<div id="faults-app"></div>
<h3 id="map-title">A map of the test images</h3>
<p class="lead">Some test classes in a plane (t-SNE: neighbours stay close, distances farther apart mean little){% if not single %}, the same images for every method{% endif %}. Point at one, or use the arrow keys, to see it; its class lights up.</p>
<div id="map-app"></div>
{% if without %}<ul class="notes"><li>Without images, to keep the page small: {{ without | join(", ") }}.</li></ul>{% endif %}
{{ values | json("faults") }}
"""  # noqa: E501


@section(
    "faults",
    title="Where {{ 'retrieval goes' if single else 'methods go' }} wrong",
    link="Faults",
    order=52,
    template=TEMPLATE,
)
def faults_section(study: StudyRecord) -> Mapping[str, Any] | None:
    """Faults and map of every method that fits, the best first; None where there are no images."""
    images = study.images
    if images is None or not study.profiles:
        return None
    pictures, methods, without = Thumbnails(images, image_byte_budget(study, "faults")), {}, []
    # Baselines last.
    ranked = sorted(comparison_table(study).rows, key=lambda row: row.kind == "baseline")
    for row in (row.method for row in ranked if row.method in study.profiles):
        faults = retrieval_faults(study.profiles[row], images)
        if faults is None:
            continue
        fits = images.dataset is None or pictures.add(*collect_rows(faults))
        if not fits:
            without.append(row)
        methods[row] = {
            "faults": faults if fits else None,
            "map": map_entry(study.profiles[row], pictures),
        }
    if not methods:
        return None
    mapped_rows = (row for one in methods.values() if one["map"] for row in one["map"]["rows"])
    listed_rows = (row for one in methods.values() if one["faults"] for row in collect_rows(one["faults"]))
    rows = sorted({*pictures.data_urls, *mapped_rows, *listed_rows})
    return {
        "without": without,
        "values": {
            "methods": methods,
            "images": {str(row): source for row, source in sorted(pictures.data_urls.items())},
            "names": {str(row): printable(images.class_name(row)) for row in rows},
        },
    }


def map_entry(profile: MethodProfile, pictures: Thumbnails) -> dict[str, Any] | None:
    """The map of a method, with its thumbnails where all of them fit; None where it has none."""
    places = profile.run.map
    if places is None:
        return None
    rows = places.rows.tolist()
    return {"rows": rows, "places": scale_coordinates(places.places), "pictured": pictures.add(*rows)}


def scale_coordinates(coordinates: NDArray[Any]) -> list[list[int]]:
    """Coordinates in a plane as whole numbers of a square of 1000 × 1000, both axes to one scale."""
    low, high = coordinates.min(axis=0), coordinates.max(axis=0)
    widest = float((high - low).max()) or 1.0
    scaled = (coordinates - (low + high) / 2) / widest + 0.5
    grid: list[list[int]] = np.rint(scaled * GRID).astype(int).tolist()
    return grid
