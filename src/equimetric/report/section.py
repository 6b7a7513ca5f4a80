"""How a section of the report is declared, found and rendered: `@section("curves", …)` in a file of its own.

A section turns a record into data, figures and words: a function returns a mapping, and a template shows it.
`{{ figure | chart }}` places a `Figure`, `{{ values | json("name") }}` gives values to a script of `assets`; `single`
says that the page is about one run or one file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from equimetric.escaping import printable
from equimetric.registry import Registry
from equimetric.report.figure import Figure
from equimetric.studies.records import StudyRecord

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

__all__ = [
    "SECTIONS",
    "RenderedSection",
    "Section",
    "figures_of",
    "has_figures",
    "is_single",
    "render_section",
    "render_template",
    "section",
    "sections_for",
]

SectionData: TypeAlias = Callable[[Any], Mapping[str, Any] | None]
Data = TypeVar("Data", bound=SectionData)

CHART = """
<figure class="chart" id="figure-{{ figure.name }}">
  <div class="canvas" role="img" aria-label="{{ figure.description }}"></div>
  {% if figure.caption %}
  <figcaption>{{ figure.caption }}</figcaption>
  {% endif %}
  {{ spec }}
</figure>
"""

WITHOUT_ALTAIR = (
    "Here is a figure where the extra “report” is installed: pip install 'equimetric[report]', then write the report "
    "again."
)


@dataclass(frozen=True)
class Section:
    """A section of the report.

    Attributes:
        name: the id of the element in the page.
        title: the heading; a template, too.
        order: its place in the page, smallest first.
        template: Jinja template of the content. All data are escaped, unless they are `Markup` already.
        link: the text of its link at the top of the page, a template too; none where it is empty.
        record_types: the records that it can show: studies, embeddings, or both.
        data: computes what the template shows from a record; None leaves the section out.

    """

    name: str
    title: str
    order: int
    template: str
    link: str
    record_types: tuple[type, ...]
    data: SectionData


@dataclass(frozen=True)
class RenderedSection:
    """What the page shows of a section."""

    name: str
    title: str
    link: Markup
    body: Markup


SECTIONS: Registry[Section] = Registry("report section", "equimetric.report.sections")


def section(
    name: str, *, title: str, order: int, template: str, link: str = "", record_types: tuple[type, ...] = (StudyRecord,)
) -> Callable[[Data], Data]:
    """Register a function from a record to the data of a section; see `Section` for the arguments."""

    def decorate(data: Data) -> Data:
        SECTIONS.add(name, Section(name, title, order, template, link, record_types, data), module=data.__module__)
        return data

    return decorate


def sections_for(record: object) -> list[Section]:
    """The sections that can show a record, in the order of the page."""
    chosen = (section for section in SECTIONS.values() if isinstance(record, section.record_types))
    return sorted(chosen, key=lambda section: (section.order, section.name))


def render_section(section: Section, record: Any) -> RenderedSection | None:
    """A section of one record as HTML; None where the record has nothing to show in it."""
    data = section.data(record)
    if data is None:
        return None
    given = {"record": record, "study": record, "single": is_single(record), **data}
    title, body, link = (
        render_template(template, **given) for template in (section.title, section.template, section.link)
    )
    return RenderedSection(section.name, title, link, body)


def is_single(record: object) -> bool:
    """Whether a page is about one run or one file, so that nothing in it is compared."""
    return not isinstance(record, StudyRecord) or len(record.runs) == 1


def figures_of(record: object) -> list[Figure]:
    """All figures of a record: those of its page, in its order, then those that its page draws in another way."""
    # Sections are imported by what they are found by, not before.
    from equimetric.report.paper_figures import paper_figures

    shown = [data for section in sections_for(record) if (data := section.data(record)) is not None]
    return [*find_figures(shown), *paper_figures(record)]


def find_figures(value: object) -> Iterator[Figure]:
    """The figures among the data of sections."""
    if isinstance(value, Figure):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from find_figures(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from find_figures(item)


def render_template(template: str, **data: Any) -> Markup:
    """HTML of a template, with the data escaped."""
    from markupsafe import Markup

    # The template is ours and its data have been escaped: the result is HTML.
    return Markup(printable(environment().from_string(template).render(**data).strip()))


def has_figures() -> bool:
    """Whether the packages that draw figures are installed."""
    return all(find_spec(name) is not None for name in ("altair", "vl_convert"))


def render_chart(figure: Figure | None) -> Markup:
    """The place of a figure, with its specification; without the packages that draw, how to get them."""
    from markupsafe import Markup

    if figure is None:
        return Markup()
    if not has_figures():
        return render_template('<p class="empty">{{ words }}</p>', words=WITHOUT_ALTAIR)
    return render_template(CHART, figure=figure, spec=render_json(figure.page_spec()))


def render_json(values: object, name: str = "") -> Markup:
    """Values for a script, which finds them by their name; no text in them can end the element."""
    from markupsafe import Markup

    text = json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    place = Markup(' id="data-{}"').format(name) if name else ""
    return Markup(f'<script type="application/json"{place}>{text}</script>')


@cache
def environment() -> Environment:
    """Escapes everything; a name that the data lack is an error."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    from equimetric.report.table_html import render_table

    created = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    # Long names may break after an underscore; joining escapes the parts.
    created.filters["breakable"] = lambda name: Markup("_<wbr>").join(name.split("_"))
    created.filters["chart"] = render_chart
    created.filters["json"] = render_json
    created.filters["table"] = render_table
    return created
