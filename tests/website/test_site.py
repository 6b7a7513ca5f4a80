"""The site as `make docs` builds it, and the notebooks."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from website.notebook_runs import code_checksum, run_cell

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for package in ("mkdocs", "mkdocstrings", "material"):
        pytest.importorskip(package, reason=f"{package} is not installed (extra docs)")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_builds_without_warnings_and_fetches_nothing(site):
    fetched = r"<(?:script|link|img|iframe)[^>]+(?:src|href)=[\"']?(?:https?:)?//"
    for page in site.rglob("*.html"):
        if "report" not in page.name:
            assert not re.search(fetched, page.read_text(encoding="utf-8")), page
    assert not any("fonts.googleapis" in file.read_text() for file in site.rglob("*.css"))


def test_the_site_has_search_dark_mode_and_every_section(site):
    home = (site / "index.html").read_text(encoding="utf-8")
    assert (site / "search" / "search_index.js").stat().st_size > 100_000
    assert "assets/iframe-worker.js" in home
    assert 'data-md-color-scheme="slate"' in home
    for section in ("Start", "Guides", "Understand", "Methods", "Results", "Benchmarks", "Migrating", "API reference"):
        assert section in home
    assert "<math" in (site / "methods" / "triplet.html").read_text(encoding="utf-8")
    assert "bounded memory" in (site / "reference" / "evaluation.html").read_text(encoding="utf-8")


def test_every_page_has_an_article(site):
    for page in site.rglob("*.html"):
        article = re.search(r"<article.*?</article>", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        if article and page.name != "404.html":
            words = re.sub(r"<[^>]+>", " ", article[0]).split()
            assert len(words) > 30, page


def test_notebooks_hold_the_outputs_of_their_code():
    """Small ones, of the code as it is now, from a run without failures and without a trace of its machine."""
    assert {notebook.stem for notebook in NOTEBOOKS} == {"threshold_consistency", "a_method_of_your_own"}
    for notebook in NOTEBOOKS:
        stored = json.loads(notebook.read_text())
        assert stored["metadata"]["outputs_of"] == code_checksum(stored["cells"]), "python -m website.notebook_runs"
        outputs = [output for cell in stored["cells"] for output in cell.get("outputs", ())]
        pictures = [output["data"].pop("image/png") for output in outputs if "image/png" in output.get("data", {})]
        assert pictures
        assert all(len(picture) < 100_000 for picture in pictures)
        assert not re.search(r"failed|/tmp|/home|/root", json.dumps(outputs))


def test_a_cell_gives_what_it_prints_draws_and_returns():
    source = "from matplotlib import pyplot\nprint('one')\npyplot.plot([1, 2])\npyplot.show()\n2 + 3"
    printed, figure, value = run_cell(source, {})
    assert printed["text"] == ["one\n"]
    assert figure["data"]["image/png"].startswith("iVBORw0KGgo")
    assert value["data"]["text/plain"] == ["5"]
    assert run_cell("x = 1", {}) == []


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_notebooks_run_from_top_to_bottom(notebook, tmp_path):
    """In a process of their own, without a display, with few steps, without photographs."""
    cells = json.loads(notebook.read_text())["cells"]
    code = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    settings = {"EQUIMETRIC_STEPS": "10", "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    environment = {name: value for name, value in os.environ.items() if name != "EQUIMETRIC_PHOTOS"}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={**environment, **settings})
    assert done.returncode == 0, done.stderr
    assert {"threshold_consistency": "of OPIS is what sampling", "a_method_of_your_own": "mine_mined"}[
        notebook.stem
    ] in done.stdout
    assert "failed" not in done.stdout
