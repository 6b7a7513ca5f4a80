"""Pages of what was measured: the READMEs in results/."""

import re
from pathlib import Path

from website.our_results import RESULTS

__all__ = ["result_files", "result_pages"]


OUTCOMES = {
    "defaults": "61 of 72 methods end above their start and above raw features on photographs of groceries, without any"
    " search.",
    "frozen-reality-check": "fourteen tuned methods lie within 3.2 points of MAP@R, and 89 of their 91 pairs are"
    " undecided.",
    "glyphs-reality-check": "classification and proxy losses lead: normalised softmax is 12.0 points of MAP@R better"
    " than contrastive loss.",
    "learners": "given equal computation, no learner is better than one network with multi-similarity loss.",
    "threshold-consistency": "a cohort of training classes makes classes more alike, on photographs in all 14"
    " spaces; TCM does so with some methods and the opposite with others.",
}
"""Study → what came out, in a sentence; its numbers are those of the README."""


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
    for file, (title, _) in pages.items():
        index += [f"* [{title}]({file.removeprefix('results/')}): {OUTCOMES[Path(file).parent.name]}"]
    grouped = {file: (f"{title}\n{title}", text) for file, (title, text) in pages.items()}
    return {"results/index.md": ("Results", "\n".join(index) + "\n"), **grouped}


def result_files() -> dict[str, Path]:
    """Pictures and tables beside the READMEs, by their place in the site."""
    kinds = {".png", ".toml", ".csv", ".html"}
    found = (file for file in sorted(RESULTS.rglob("*")) if file.suffix in kinds)
    return {f"results/{file.relative_to(RESULTS).as_posix()}": file for file in found}
