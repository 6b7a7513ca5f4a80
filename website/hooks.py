"""What MkDocs calls: adds generated pages to those of docs/, fills the navigation, typesets formulas, mends links."""

import posixpath
import re
from html import escape, unescape
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from website.benchmark_pages import benchmark_pages
from website.explaining import choice_figure, run_examples, utility_figure, verdict_figure
from website.figures import toy_spaces
from website.formulas import display_formula
from website.home_picture import home_figure
from website.method_pages import method_pages, weight_gallery
from website.migration_pages import MIGRATION_FILES, migration_pages
from website.notebook_pages import notebook_pages
from website.project_pages import PROJECT_FILES, project_pages
from website.reference_pages import reference_pages
from website.result_pages import result_files, result_pages

ROOT = Path(__file__).parents[1]
SECTIONS = {
    "Guides": notebook_pages,
    "Methods": method_pages,
    "Results": result_pages,
    "Benchmarks": benchmark_pages,
    "Migrating": migration_pages,
    "API reference": reference_pages,
    "Project": project_pages,
}
"""Section of the navigation → function that gives its pages: file → (title, Markdown), the index first."""

FIGURES = {"home": home_figure, "toy-spaces": toy_spaces, "weight-gallery": weight_gallery}
"""What `<!-- figure: NAME -->` in a page stands for."""

DRAWN_EXAMPLES = {"choices": choice_figure, "utility": utility_figure, "verdicts": verdict_figure}
"""The same for figures of what the examples of the page compute."""


def on_config(config: MkDocsConfig) -> None:
    """Make the generated pages and put those into the navigation that their section does not name itself."""
    pages = {section: build() for section, build in SECTIONS.items()}
    config.extra["generated"] = {file: text for section in pages.values() for file, (_, text) in section.items()}
    for entry in config.nav or []:
        for section in entry:
            if section in pages:
                unnamed = {file: page for file, page in pages[section].items() if file not in entry[section]}
                entry[section] += navigation(unnamed)


def navigation(pages: dict[str, tuple[str, str]]) -> list[Any]:
    """Pages as entries; those with a title of two lines, group and name, stand in their group."""
    entries: list[Any] = []
    groups: dict[str, list[Any]] = {}
    for file, (title, _) in pages.items():
        group, _, name = title.rpartition("\n")
        if group and group not in groups:
            groups[group] = []
            entries.append({group: groups[group]})
        (groups[group] if group else entries).append(file if file.endswith("/index.md") else {name: file})
    return entries


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and the pictures and configurations that results refer to."""
    for file, text in config.extra["generated"].items():
        files.append(File.generated(config, file, content=text))
    for file, path in result_files().items():
        files.append(File.generated(config, file, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Draw figures, typeset formulas, and lead links to files of the repository to their page."""
    markdown = re.sub(r"```formula\n(.*?)\n```", lambda match: display_formula(match[1]), markdown, flags=re.DOTALL)
    markdown = re.sub(r"<!-- figure: (\S+) -->", lambda match: draw(match[1], markdown), markdown)
    return re.sub(r"\]\((\.\./[^)\s#]+)(#[^)\s]*)?\)", lambda match: mend(match, page.file.src_uri), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Have the copy button of the theme copy the commands of a console block, without prompts and output."""
    return re.sub(r'<div class="highlight">(?=(<pre>.*?</pre>))', copied_commands, html, flags=re.DOTALL)


def copied_commands(match: re.Match[str]) -> str:
    """The start of a block, with what is copied in `data-copy` where the block has prompts."""
    if '<span class="gp">$ </span>' not in match[1]:
        return match[0]
    commands = commands_of(unescape(re.sub(r"<[^>]+>", "", match[1])))
    return f'<div class="highlight" data-copy="{escape(commands).replace(chr(10), "&#10;")}">'


def commands_of(session: str) -> str:
    """The lines of a console session that were typed: those after a prompt, and what continues them."""
    typed: list[str] = []
    continued = False
    for line in session.splitlines():
        if continued or line.startswith("$ "):
            typed.append(line if continued else line.removeprefix("$ "))
            continued = line.endswith("\\")
    return "\n".join(typed)


def draw(figure: str, markdown: str) -> str:
    """A figure by its name."""
    if figure in FIGURES:
        return FIGURES[figure]()
    return DRAWN_EXAMPLES[figure](run_examples(markdown))


def mend(match: re.Match[str], source: str) -> str:
    """A link out of docs/ as one inside of the site."""
    folder = posixpath.dirname(source)
    repository = posixpath.normpath(posixpath.join("docs", folder, match[1]))
    target = site_name(repository)
    if target is None:
        return match[0]
    return f"]({posixpath.relpath(target, folder or '.')}{match[2] or ''})"


def site_name(repository: str) -> str | None:
    """The page of a file of the repository, None where the link already is one of the site."""
    generated = {**PROJECT_FILES, **MIGRATION_FILES}
    if repository in generated:
        return generated[repository]
    notebook = re.fullmatch(r"docs/(notebooks/\w+)\.ipynb", repository)
    if notebook:
        return f"{notebook[1]}.md"
    study = re.fullmatch(r"(?:docs/)?(results/[^/.]+)(?:/README\.md)?", repository)
    return f"{study[1]}/index.md" if study else None
