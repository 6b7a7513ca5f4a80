"""Every link of the documentation leads somewhere: to a file of the repository, and to a heading where it names one."""

import re
import unicodedata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "results").rglob("*.md")])
EXTERNAL = {"https://keepachangelog.com", "https://semver.org"}
"""Addresses outside; nothing else is linked, so that the pages are complete without a network."""


def without_code(page):
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page):
    """The ids of headings, as GitHub and Python-Markdown make them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+?)\s*$", text, flags=re.MULTILINE)
    plain = [unicodedata.normalize("NFKD", title).replace("`", "").lower() for title in titles]
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title)).strip("-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    for target in re.findall(r"(?<!\\)\]\(([^)\s]+)\)", without_code(page)):
        if target.startswith("http"):
            assert target in EXTERNAL
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert file.is_relative_to(ROOT)
        if anchor:
            assert anchor in anchors(file), target


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One thing: `x`\n\n[there](#one-thing-x) `[not a link](nowhere)`\n")
    assert anchors(page) == {"one-thing-x"}
    assert "nowhere" not in without_code(page)
