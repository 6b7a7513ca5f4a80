"""What a threshold does: a slider moves the error rates of all pairs and of classes, for two methods side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from equimetric.evaluation.threshold_profile import ThresholdProfile
from equimetric.report.page_budget import PAGE_BYTES, image_byte_budget, other_bytes, threshold_byte_budget
from equimetric.report.section import section
from equimetric.report.table_data import format_share
from equimetric.report.threshold_data import all_classes, method_thresholds
from equimetric.runs.profile import CertifiedPoint, RunProfile
from equimetric.studies.embeddings_record import EmbeddingsRecord
from equimetric.studies.records import RunRecord, StudyRecord
from equimetric.studies.table import comparison_table

__all__ = ["class_names", "compared_methods", "explorer_section"]

ALL_CLASSES_BYTES = 2_500_000
"""What all classes of the two methods may take together at most."""
STRIDES = (1, 2, 4, 8)
ACCEPTED = {False: "distance is at most", True: "score is at least"}
"""Whether a method has scores → which pairs it accepts."""
WITHOUT_COHORT = " (without its cohort)"
DETAIL = ((101, 20), (11, 20), (11, 6), (11, 2))
"""Quantiles over the classes, and classes of lowest utility, of each method; a page of very many methods has fewer."""

TEMPLATE = """
<p class="lead">Two items are accepted as the same class where their {{ accepted }} the threshold. Move it, and see what that
does to all pairs and to every class. All values are counts of the pairs of {{ counted }}.</p>
<div id="explorer-app" hidden></div>
<h3>Calibration range and certificate{% if not single %} of every method{% endif %}</h3>
<div class="scroll" role="region" aria-label="Calibration range and certificate{% if not single %} of all methods{% endif %}" tabindex="0">
<table class="results">
  <thead><tr><th scope="col">{{ "Of" if single else "Method" }}</th><th scope="col" class="number">Calibration range</th>
    <th scope="col" class="number">OPIS ×10⁻³</th><th scope="col" class="number">10 %-OPIS ×10⁻³</th>
    <th scope="col" class="number">Certified threshold</th><th scope="col" class="number">FAR %</th><th scope="col" class="number">FRR %</th>
    {% if bounded %}<th scope="col" class="number">FAR bound %</th>{% endif %}</tr></thead>
  <tbody>
  {% for method in methods %}
    <tr>
      <th scope="row"><span class="name">{{ method.name | breakable }}</span>{% if method.plain %} <span class="unit">without its cohort</span>{% endif %}</th>
      <td class="number">{{ method.range }}</td>
      <td class="number">{{ method.opis }}</td><td class="number">{{ method.opis10 }}</td>
      {% for cell in method.certified[:4 if bounded else 3] %}<td class="number">{{ cell }}</td>{% endfor %}
    </tr>
  {% endfor %}
  </tbody>
</table>
</div>
<ul class="notes"><li>The calibration range lies between the thresholds of false accept rates (FAR) of 1 % and 10 %. OPIS is the variance between classes of the
utility there: the harmonic mean of 1 − FAR and 1 − FRR of a class; lower is more even. The certified threshold is that of <code>equimetric calibrate</code> on these
classes{% if bounded %}; the FAR bound is one for new classes, with 95 % confidence{% endif %}.</li></ul>
{{ values | json("explorer") }}
"""  # noqa: E501


@section(
    "explorer",
    title="One threshold for every class",
    link="Thresholds",
    order=34,
    template=TEMPLATE,
    record_types=(StudyRecord, EmbeddingsRecord),
)
def explorer_section(record: StudyRecord | EmbeddingsRecord) -> Mapping[str, Any] | None:
    """All methods with stored thresholds, or embeddings alone."""
    if isinstance(record, EmbeddingsRecord):
        if record.profile is None or record.profile.thresholds is None:
            return None
        return explore({record.name: record.profile}, [record.name], record.class_names, "these classes")
    profiles = {row: profile for row, profile in record.profiles.items() if profile.run.thresholds is not None}
    if not profiles:
        return None
    # Baselines last.
    ranked = sorted(comparison_table(record).rows, key=lambda row: row.kind == "baseline")
    order = [row.method for row in ranked if row.method in profiles]
    seeds = ", ".join(sorted({str(profiles[row].seed) for row in order}))
    runs = {row: profiles[row].run for row in order}
    pictures = image_byte_budget(record) if record.images is not None and record.images.dataset is not None else 0
    shown = compared_methods(record, order)
    return explore(runs, shown, class_names(record), f"the test classes, seed {seeds}", len(record.methods), pictures)


def explore(
    runs: Mapping[str, RunProfile],
    shown: list[str],
    names: Mapping[int, str],
    counted: str,
    rows: int = 1,
    pictures: int = 0,
) -> dict[str, Any]:
    """The data of the section, in a page with `rows` rows and `pictures` bytes of images.

    The methods shown first come with all their classes.
    """
    variants = len(runs) + sum(run.plain is not None for run in runs.values())
    methods = fit_methods(runs, names, threshold_byte_budget(rows, variants))
    profiles = {row: profile for row in shown if (profile := runs[row].thresholds) is not None}
    others = other_bytes(rows) + pictures + len(json.dumps(methods))
    certified = {row: runs[row].certified for row in profiles}
    classes = fit_classes(profiles, names, min(ALL_CLASSES_BYTES, PAGE_BYTES - others), certified)
    scored = {method["scored"] for method in methods.values()}
    described = [describe(name, method) for name, method in methods.items()]
    return {
        # No certificate has a bound where there are few classes.
        "bounded": any(one["certified"][-1] != "–" for one in described),
        "accepted": " or their ".join(ACCEPTED[kind] for kind in sorted(scored)),
        "counted": counted,
        "methods": described,
        "values": {"methods": methods, "shown": shown, "classes": classes},
    }


def fit_methods(
    runs: Mapping[str, RunProfile], names: Mapping[int, str], byte_budget: int
) -> dict[str, dict[str, Any]]:
    """The thresholds of all methods, with and without their cohorts, in as much detail as fits into `byte_budget`."""
    methods: dict[str, dict[str, Any]] = {}
    for levels, worst in DETAIL:
        for row, run in runs.items():
            assert run.thresholds is not None
            cohort = {"cohort": run.plain is not None}
            methods[row] = cohort | method_thresholds(run.thresholds, names, run.certified, levels, worst)
            if run.plain is not None:
                plain = method_thresholds(run.plain, names, None, levels, worst)
                methods[row + WITHOUT_COHORT] = {"cohort": False} | plain
        if len(json.dumps(methods)) <= byte_budget:
            break
    return methods


def class_names(study: StudyRecord) -> dict[int, str]:
    """Class id → name, of all test classes that runs list."""
    listed = {id(run.classes): run.classes for run in study.runs if isinstance(run, RunRecord) and run.classes}
    return {label: name for one in listed.values() for label, name in zip(one.labels, one.names, strict=True)}


def compared_methods(study: StudyRecord, order: list[str]) -> list[str]:
    """Two rows: a method with TCM and the same without it, where there are such; else the first and the second."""
    recipes = {row: method.partition("+") for row, (method, _) in study.recipes.items() if row in order}
    for row, (base, _, added) in recipes.items():
        plain = [other for other, (name, _, rest) in recipes.items() if name == base and not rest]
        if "tcm" in added.split("+") and plain:
            return [plain[0], row]
    return order[:2]


def fit_classes(
    profiles: Mapping[str, ThresholdProfile],
    names: Mapping[int, str],
    byte_budget: int,
    certified: Mapping[str, CertifiedPoint | None] = MappingProxyType({}),
) -> dict[str, Any]:
    """All classes of the profiles, at as many thresholds as fit into `byte_budget`; none where not even a few do."""
    for stride in STRIDES:
        packed = {row: all_classes(profile, names, stride, certified.get(row)) for row, profile in profiles.items()}
        if len(json.dumps(packed)) <= byte_budget:
            return packed
    return {}


def describe(name: str, method: Mapping[str, Any]) -> dict[str, Any]:
    """The cells of a method that hold without a slider."""
    sign = -1 if method["scored"] else 1
    first, last = method["calibration"]
    ends = sorted(sign * method["thresholds"][place] for place in (first, last - 1))
    point = method["certified"]
    bound = None if point is None else point["far_bound"]
    return {
        "name": name.removesuffix(WITHOUT_COHORT),
        "plain": name.endswith(WITHOUT_COHORT),
        "range": f"{ends[0]:.3f} … {ends[1]:.3f}".replace("-", "−"),
        "opis": f"{1e3 * method['opis']:.2f}",
        "opis10": f"{1e3 * method['opis10']:.1f}",
        "certified": ["–"] * 4
        if point is None
        else [
            f"{sign * point['threshold']:.4f}".replace("-", "−"),
            format_share(point["far"]),
            format_share(point["frr"]),
            "–" if bound is None else format_share(bound),
        ],
    }
