"""Pages of files outside of docs/: what was measured (results/), how to contribute, what changed."""

import re
from pathlib import Path

from website.our_results import RESULTS

__all__ = ["project_pages", "result_files", "result_pages"]

ROOT = Path(__file__).parents[1]


def result_pages() -> dict[str, tuple[str, str]]:
    """The README of each study, after an index."""
    pages = {}
    for readme in sorted(RESULTS.glob("*/README.md")):
        text = readme.read_text(encoding="utf-8")
        text = re.sub(r"\]\(\.\./\.\./docs/", "](../../", text)
        pages[f"results/{readme.parent.name}/index.md"] = (text.splitlines()[0].removeprefix("# "), text)
    index = [
        "# Results",
        "",
        "Studies that were run with Equimetric, each with its configuration, tables and what cannot be concluded.",
        "",
    ]
    index += [f"* [{title}]({file.removeprefix('results/')})" for file, (title, _) in pages.items()]
    grouped = {file: (f"{title}\n{title}", text) for file, (title, text) in pages.items()}
    return {"results/index.md": ("Results", "\n".join(index) + "\n"), **grouped}


def result_files() -> dict[str, Path]:
    """Pictures and tables beside the READMEs, by their place in the site."""
    kinds = {".png", ".toml", ".csv", ".html"}
    found = (file for file in sorted(RESULTS.rglob("*")) if file.suffix in kinds)
    return {f"results/{file.relative_to(RESULTS).as_posix()}": file for file in found}


def project_pages() -> dict[str, tuple[str, str]]:
    """Contributing and changelog."""
    pages = {}
    for name, title in (("CONTRIBUTING", "Contributing"), ("CHANGELOG", "Changelog")):
        text = (ROOT / f"{name}.md").read_text(encoding="utf-8")
        text = re.sub(r"\]\(docs/", "](../", text.replace("](CONTRIBUTING.md)", "](contributing.md)"))
        pages[f"project/{name.lower()}.md"] = (title, text)
    return pages
