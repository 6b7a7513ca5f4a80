"""What MkDocs calls: adds generated pages to those of docs/, fills the navigation, typesets formulas, mends links."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from website.benchmark_pages import benchmark_pages
from website.explaining import choice_figure, run_examples, utility_figure, verdict_figure
from website.figures import toy_spaces
from website.formulas import display_formula
from website.method_pages import method_pages, weight_gallery
from website.migration_pages import migration_pages
from website.reference_pages import reference_pages
from website.result_pages import project_pages, result_files, result_pages

ROOT = Path(__file__).parents[1]
SECTIONS = {
    "Methods": method_pages,
    "Results": result_pages,
    "Benchmarks": benchmark_pages,
    "Migrating": migration_pages,
    "API reference": reference_pages,
    "Project": project_pages,
}
"""Section of the navigation → function that gives its pages: file → (title, Markdown), the index first."""

FIGURES = {"toy-spaces": toy_spaces, "weight-gallery": weight_gallery}
"""What `<!-- figure: NAME -->` in a page stands for."""

DRAWN_EXAMPLES = {"choices": choice_figure, "utility": utility_figure, "verdicts": verdict_figure}
"""The same for figures of what the examples of the page compute."""

ELSEWHERE = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "src/equimetric/objectives/counterparts.toml": "migrating/pytorch-metric-learning.md",
    "src/equimetric/objectives/open_metric_learning.toml": "migrating/open-metric-learning.md",
}
"""Files of the repository that are pages of the site under another name."""


def on_config(config: MkDocsConfig) -> None:
    """Make the generated pages and put all pages into the navigation; one that it does not name is a guide."""
    named = set(re.findall(r"[\w./-]+\.md", str(config.nav)))
    docs = Path(config.docs_dir)
    others = [file.relative_to(docs).as_posix() for file in sorted(docs.rglob("*.md"))]
    pages = {section: build() for section, build in SECTIONS.items()}
    config.extra["generated"] = {file: text for section in pages.values() for file, (_, text) in section.items()}
    for entry in config.nav or []:
        for section in entry:
            if section in pages:
                entry[section] = navigation(pages[section])
            if section == "Guides":
                entry[section] += [file for file in others if file not in {*named, "methods.md"}]


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
    if repository in ELSEWHERE:
        return ELSEWHERE[repository]
    study = re.fullmatch(r"(?:docs/)?(results/[^/.]+)(?:/README\.md)?", repository)
    return f"{study[1]}/index.md" if study else None
