"""The papers of methods, with links to those in arXiv."""

import tomllib
from functools import cache
from pathlib import Path

__all__ = ["linked_papers", "read_numbers", "title_of"]

FILE = Path(__file__).with_name("papers.toml")


def linked_papers(papers: str) -> str:
    """`Authors: title (year)`, several separated by semicolons, as Markdown."""
    return "; ".join(map(linked, papers.split("; ")))


def linked(paper: str) -> str:
    """One paper; its title leads to it where arXiv has it."""
    title = title_of(paper)
    number = read_numbers().get(title)
    return paper.replace(title, f"[{title}](https://arxiv.org/abs/{number})") if number else paper


def title_of(paper: str) -> str:
    """What stands between authors and year."""
    return paper.partition(": ")[2].rpartition(" (")[0]


@cache
def read_numbers() -> dict[str, str]:
    """Title → number in arXiv."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))
