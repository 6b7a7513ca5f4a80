"""Pages of the files at the top of the repository: contributing, security, citation, licence, changelog."""

import re
from pathlib import Path

from mkdocs.utils.yaml import yaml_load

__all__ = ["PROJECT_FILES", "project_pages"]

ROOT = Path(__file__).parents[1]

PROJECT_FILES = {
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CITATION.cff": "project/citation.md",
    "LICENSE": "project/licence.md",
    "CHANGELOG.md": "project/changelog.md",
}
"""File of the repository → page of the site."""


def project_pages() -> dict[str, tuple[str, str]]:
    """A page for each file, under its own title."""
    pages = {}
    for name, page in PROJECT_FILES.items():
        text = page_text(name)
        pages[page] = (text.splitlines()[0].removeprefix("# "), text)
    return pages


def page_text(name: str) -> str:
    """A file as Markdown, with its links leading to pages."""
    text = (ROOT / name).read_text(encoding="utf-8")
    if name == "LICENSE":
        return (
            f"# Licence\n\nEquimetric is free software under the Apache License 2.0.\n\n```text\n{text.rstrip()}\n```\n"
        )
    if name == "CITATION.cff":
        return citation_page(text)
    for file, page in PROJECT_FILES.items():
        text = text.replace(f"]({file})", f"]({Path(page).name})")
    return re.sub(r"\]\(docs/", "](../", text)


def citation_page(text: str) -> str:
    """The citation as BibTeX, and the file that tools read."""
    cited = yaml_load(text)
    authors = " and ".join(f"{{{author['name']}}}" for author in cited["authors"])
    return (
        f"# Citation\n\n{cited['message']}\n\n"
        f"```bibtex\n@software{{equimetric,\n  title = {{{cited['title']}}},\n  author = {{{authors}}},\n"
        f"  version = {{{cited['version']}}},\n  license = {{{cited['license']}}},\n}}\n```\n\n"
        "Each page of the [methods](../methods/index.md) names the paper to cite with it.\n\n"
        f"## CITATION.cff\n\n```yaml\n{text.rstrip()}\n```\n"
    )
