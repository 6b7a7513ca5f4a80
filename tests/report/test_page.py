import base64
import hashlib
import io
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from equimetric.errors import EquimetricError
from equimetric.report import (
    GalleryRow,
    comparison_table,
    record_tables,
    render_html,
    to_csv,
    to_latex,
    to_markdown,
    write_report,
)
from equimetric.report.bundle import page_style, vega_bundle
from equimetric.report.sections.gallery import UNFOLDED, data_uri

VOID = {"meta", "img", "br", "wbr", "link", "input", "hr"}
HOSTILE = """<script>alert('1')</script><img src=x onerror="alert(2)">"""


class Page(HTMLParser):
    """A strict parser: every element is closed in order; keeps elements, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


@pytest.fixture
def page(study) -> Page:
    return Page(render_html(study))


def test_all_sections_are_there_and_links_lead_to_them(page):
    sections = [attributes["id"] for attributes in page.all("section")]
    assert sections == ["answer", "leaderboard", "gallery", "statement", "fairness", "training", "failures"]
    targets = [attributes["href"] for attributes in page.all("a")]
    assert {target.removeprefix("#") for target in targets} <= set(sections)
    assert [figure["id"] for figure in page.all("figure")] == ["figure-intervals", "figure-curves"]


def test_statement_conditions_numbers_and_reasons_are_shown(page):
    for expected in (
        "A tiny study",
        "Only the objective differs.",
        "backbone",
        "small CNN",
        "62.0 ± 5.0",
        "multi_similarity has the best mean map@r, 62.0 ± 5.0 %, of 2 methods.",
        "2 of 3, 1 failed",
        "1 of 8 runs failed",
        "the loss became NaN at step 340",
        "Baselines are not trained; a baseline with one run (n = 1) has no interval.",
        "Failed runs, not in the means: contrastive (1 of 3: the loss became NaN at step 340).",
    ):
        assert expected in page.text


def test_nothing_outside_the_file_is_referenced(study):
    text = render_html(study)
    page = Page(text)
    for tag in ("link", "iframe", "object", "base"):
        assert page.all(tag) == []
    for _, attributes in page.elements:
        for name in ("src", "href", "xlink:href", "srcset", "poster", "action"):
            assert attributes.get(name, "#").startswith(("#", "data:image/png;base64,", "data:image/jpeg;base64,"))
    assert "@import" not in page_style()
    assert "url(" not in page_style()


def test_the_policy_allows_these_scripts_and_styles_and_nothing_else(study):
    text = render_html(study)
    page = Page(text)
    (policy,) = [meta["content"] for meta in page.all("meta") if "http-equiv" in meta]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")

    def digest(content):
        return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()

    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        allowed = re.search(rf"{rule} ([^;]*)", policy)[1]
        written = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert [f"'sha256-{digest(content)}'" for content in written] == allowed.split()
    assert all(script in ({}, {"type": "application/json"}) or "id" in script for script in page.all("script"))


def test_photographs_are_shown_as_jpeg_and_drawings_pixel_by_pixel():
    noise = np.random.default_rng(0).integers(0, 256, (3, 300, 200), dtype=np.uint8)
    photograph, drawing = data_uri(noise), data_uri(noise[:, :64, :64])
    assert photograph.startswith("data:image/jpeg;base64,")
    assert drawing.startswith("data:image/png;base64,")
    opened = Image.open(io.BytesIO(base64.b64decode(drawing.partition(",")[2])))
    assert np.array_equal(np.asarray(opened).transpose(2, 0, 1), noise[:, :64, :64])
    assert max(Image.open(io.BytesIO(base64.b64decode(photograph.partition(",")[2]))).size) <= 104


def test_ids_are_unique(page):
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_every_heading_cell_has_a_scope_and_every_image_an_alt_text(page):
    assert all(attributes.get("scope") in ("row", "col") for attributes in page.all("th"))
    assert all(attributes["alt"] for attributes in page.all("img"))


def test_the_gallery_marks_right_and_wrong_in_text_and_symbols(page):
    alternatives = [attributes["alt"] for attributes in page.all("img")]
    expected = ["query: letter a", "neighbour 1: letter a, same class", "neighbour 2: letter b, another class"]
    assert alternatives == expected * 2
    gallery = page.text[page.text.index("Retrieval gallery") : page.text.index("What was compared")]
    assert gallery.count("✓") == 3, "one in the key and one per gallery"
    assert gallery.count("✗") == 3
    assert gallery.index("multi_similarity") < gallery.index("raw pixels"), "the best method first, baselines last"


def test_galleries_of_many_methods_are_folded(run, study_of, picture):
    row = GalleryRow(picture(1, 8), "q", ((picture(1, 8), "a", True),))
    for number, folded in ((UNFOLDED + 1, 0), (UNFOLDED + 3, 3)):
        names = [f"m{k}" for k in range(number)]
        made = study_of(*(run(name, 0, 0.5) for name in names), galleries=dict.fromkeys(names, (row,)))
        shown = Page(render_html(made)).text
        assert shown.count("more methods") == bool(folded)
        assert f"{folded} more methods" in shown or not folded


def test_pictures_are_the_pixels_given_and_large_ones_are_scaled_down(run, study_of, picture):
    grey, colour, large = picture(1, 8), picture(3, 8), picture(3, 300)
    row = GalleryRow(grey, "q", ((colour, "a", True), (large, "b", False)))
    images = Page(render_html(study_of(run("m", 0, 0.5), galleries={"m": (row,)}))).all("img")
    decoded = [Image.open(io.BytesIO(base64.b64decode(image["src"].split(",")[1]))) for image in images]
    assert [image.mode for image in decoded] == ["L", "RGB", "RGB"]
    assert decoded[0].tobytes() == grey.tobytes()
    assert decoded[1].tobytes() == colour.transpose(1, 2, 0).tobytes()
    assert decoded[2].size == (80, 80)
    assert [image.get("class") for image in images] == ["enlarged", "enlarged", None]


def test_hostile_text_stays_text_everywhere(run, study_of, picture):
    history = ({"kind": "validation", "step": 1, HOSTILE: 0.5},)
    row = GalleryRow(picture(), HOSTILE, ((picture(), HOSTILE, False),))
    study = study_of(
        run(HOSTILE, 0, metrics={HOSTILE: 0.5}, history=history),
        run(HOSTILE, 1, status="failed", error=HOSTILE),
        name=HOSTILE,
        title=HOSTILE,
        statement=(HOSTILE,),
        conditions={HOSTILE: HOSTILE},
        galleries={HOSTILE: (row,)},
        primary_metric=HOSTILE,
    )
    text = render_html(study)
    page = Page(text)
    assert "<script>alert" not in text.replace(vega_bundle(), "")
    assert [image["alt"] for image in page.all("img")] == [
        f"query: {HOSTILE}",
        f"neighbour 1: {HOSTILE}, another class",
    ]
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    # Title twice, name, statement, condition and value, method and metric and footnotes, gallery, failure.
    assert page.text.count(HOSTILE) >= 14


def test_control_characters_and_lone_surrogates_do_not_reach_the_file(run, study_of, tmp_path):
    study = study_of(run("a\x00b\ud800", status="failed", error="first line\nsecond \x1b[2J"))
    text = write_report(study, tmp_path).read_text(encoding="utf-8")
    assert "a�b�" in text
    assert "first line\nsecond �[2J" in text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text.replace(vega_bundle(), ""))


def test_a_study_without_failures_curves_or_gallery_says_so(run, study_of):
    page = Page(render_html(study_of(run("triplet", 0, 0.5))))
    assert "runs finished" not in page.text
    assert "No validation was logged during training." in page.text
    assert "gallery" not in [attributes["id"] for attributes in page.all("section")]


def test_a_study_whose_runs_all_failed_is_reported(run, study_of):
    page = Page(render_html(study_of(run("lost", status="failed"))))
    assert "No run finished, so there is nothing to compare." in page.text
    assert "no reason was recorded" in page.text


def test_write_report_writes_page_and_tables_and_nothing_else(study, tmp_path):
    path = write_report(study, tmp_path / "new" / "report")
    tables = record_tables(study)
    contents = {file.name: file.read_bytes().decode() for file in path.parent.iterdir()}
    assert path.name == "index.html"
    assert contents == {
        "index.html": render_html(study),
        **{f"{name}.md": to_markdown(table) for name, table in tables.items()},
        **{f"{name}.csv": to_csv(table) for name, table in tables.items()},
        **{f"{name}.tex": to_latex(table) for name, table in tables.items()},
    }
    assert contents["table.md"] == to_markdown(comparison_table(study))


def test_two_reports_of_one_study_are_the_same_bytes(study, tmp_path):
    first, second = write_report(study, tmp_path / "a"), write_report(study, tmp_path / "b")
    for name in ("index.html", "table.md", "table.csv", "table.tex"):
        assert (first.parent / name).read_bytes() == (second.parent / name).read_bytes()


def test_a_failed_write_keeps_the_old_page_and_leaves_no_fragment(study, tmp_path, monkeypatch):
    from pathlib import Path

    (tmp_path / "index.html").write_text("old")
    replace = Path.replace

    def refuse_page(path, target):
        if target.name == "index.html":
            raise OSError(28, "No space left on device")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", refuse_page)
    with pytest.raises(EquimetricError, match=r"No space left on device.*choose a writable folder"):
        write_report(study, tmp_path)
    assert (tmp_path / "index.html").read_text() == "old"
    tables = [f"{name}.{form}" for name in record_tables(study) for form in ("csv", "md", "tex")]
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(["index.html", *tables])


def test_a_destination_that_is_a_file_is_an_error(study, tmp_path):
    (tmp_path / "report").write_text("a file")
    with pytest.raises(EquimetricError, match="cannot write the report"):
        write_report(study, tmp_path / "report")


def test_the_drawing_library_is_loaded_only_when_needed():
    code = "import sys, equimetric.report; print(sorted({'matplotlib', 'altair'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
