"""How a section of the report is declared, found and rendered: `@section("curves", …)` in a file of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from equimetric.registry import Registry
from equimetric.studies.records import StudyRecord

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

__all__ = ["SECTIONS", "RenderedSection", "Section", "inline_svg", "render_section", "render_template", "section"]

SectionData: TypeAlias = Callable[[StudyRecord], Mapping[str, Any] | None]


@dataclass(frozen=True)
class Section:
    """A section of the report.

    Attributes:
        name: the id of the element in the page.
        title: the heading.
        order: its place in the page, smallest first.
        template: Jinja template of the content. All data are escaped, unless they are `Markup` already.
        link: the text of its link at the top of the page, a template too; none where it is empty.
        data: computes what the template shows from the record of a study; None leaves the section out.

    """

    name: str
    title: str
    order: int
    template: str
    link: str
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
    name: str, *, title: str, order: int, template: str, link: str = ""
) -> Callable[[SectionData], SectionData]:
    """Register a function from the record of a study to the data of a section; see `Section` for the arguments."""

    def decorate(data: SectionData) -> SectionData:
        SECTIONS.add(name, Section(name, title, order, template, link, data), module=data.__module__)
        return data

    return decorate


def render_section(section: Section, study: StudyRecord) -> RenderedSection | None:
    """A section of one study as HTML; None where the study has nothing to show in it."""
    data = section.data(study)
    if data is None:
        return None
    body, link = (
        render_template(template, **{"study": study, **data}) for template in (section.template, section.link)
    )
    return RenderedSection(section.name, section.title, link, body)


def render_template(template: str, **data: Any) -> Markup:
    """HTML of a template, with the data escaped."""
    from markupsafe import Markup

    # The template is ours and its data have been escaped: the result is HTML.
    return Markup(environment().from_string(template).render(**data).strip())


def inline_svg(svg: str | None) -> Markup | None:
    """A figure of `equimetric.report.figures` for a template; matplotlib has escaped its words."""
    from markupsafe import Markup

    return None if svg is None else Markup(svg)


@cache
def environment() -> Environment:
    """Escapes everything; a name that the data lack is an error."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    created = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    # Long names may break after an underscore; joining escapes the parts.
    created.filters["breakable"] = lambda name: Markup("_<wbr>").join(name.split("_"))
    return created
