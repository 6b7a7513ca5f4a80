"""Tables and figures for papers: `equimetric report --format`, and what is left without the packages that draw."""

import io
import json
import re
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from latex_checks import check_latex_structure, compile_latex
from PIL import Image

from equimetric.report import figures_of, record_tables, render_figure, write_figures, write_report

FORMS = ("svg", "png", "pdf")


@pytest.fixture
def reported(monkeypatch, judged_study):
    """`equimetric report` finds this study in any folder."""
    monkeypatch.setattr("equimetric.studies.report_records.load_record", lambda source, labels, **_: judged_study)
    return judged_study


@pytest.fixture
def without_extra(monkeypatch):
    for name in ("altair", "vl_convert"):
        monkeypatch.setitem(sys.modules, name, None)


def check_figure(content: bytes, form: str) -> None:
    """A file of its kind that draws something on white."""
    if form == "svg":
        root = ElementTree.fromstring(content)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) > 2
        assert b"currentColor" not in content
    elif form == "png":
        image = Image.open(io.BytesIO(content)).convert("RGB")
        assert min(image.size) > 50
        assert image.getpixel((0, 0)) == (255, 255, 255)
        assert len(image.getcolors(2**24)) > 2
    else:
        assert content.startswith(b"%PDF-")
        assert content.rstrip().endswith(b"%%EOF")


def pdf_streams(content: bytes) -> list[bytes]:
    """What a PDF draws, and its fonts, without the order of its objects."""
    found = re.findall(rb"\nstream\n(.*?)\nendstream\n", content, re.DOTALL)
    assert found
    return sorted(found)


@pytest.mark.parametrize("form", FORMS)
def test_a_figure_is_a_valid_file_and_the_same_every_time(judged_study, form):
    figure = figures_of(judged_study)[0]
    content = render_figure(figure, form)
    check_figure(content, form)
    again = render_figure(figure, form)
    # The converter writes the objects of a PDF in any order.
    assert pdf_streams(again) == pdf_streams(content) if form == "pdf" else again == content


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_every_figure_of_a_study_is_written(study, closer, class_list, tmp_path, form):
    record = replace(study, runs=tuple(replace(run, classes=class_list) for run in study.runs), **closer)
    figures = figures_of(record)
    files = write_figures(figures, tmp_path, form)
    names = [figure.name for figure in figures]
    assert [file.name for file in files] == [f"{name}.{form}" for name in names]
    assert len(set(names)) == len(names)
    for file in files:
        check_figure(file.read_bytes(), form)


def test_the_command_names_the_files_it_has_written(equimetric, reported, tmp_path):
    code, out, err = equimetric("report", tmp_path, "--format", "svg", "--output", tmp_path / "figures")
    assert code == 0, err
    written = sorted(file.name for file in (tmp_path / "figures").iterdir())
    assert written == sorted(f"{figure.name}.svg" for figure in figures_of(reported))
    assert out.count("Figure: ") == len(written)


def test_tex_is_whole_tables_and_nothing_else(equimetric, reported, tmp_path):
    code, out, err = equimetric("report", tmp_path, "--format", "tex")
    assert code == 0, err
    end = r"\end{table}"
    *tables, rest = out.split(end)
    assert not rest.strip()
    assert len(tables) > 1
    for table in tables:
        check_latex_structure(table + end)


@pytest.mark.slow
def test_what_tex_prints_compiles(equimetric, reported, tmp_path):
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed; the structure is checked above")
    _, out, _ = equimetric("report", tmp_path, "--format", "tex")
    compile_latex(out, tmp_path)


def test_tables_are_printed_in_every_format(equimetric, reported, tmp_path):
    for form, expected in (("md", "| margin\\_miner |"), ("csv", "margin_miner,"), ("json", '"margin_miner"')):
        code, out, err = equimetric("report", tmp_path, "--format", form)
        assert code == 0, err
        assert expected in out
    decoder, text = json.JSONDecoder(), out.strip()
    while text:
        table, end = decoder.raw_decode(text)
        assert table["rows"]
        text = text[end:].strip()


@pytest.mark.parametrize("form", ["md", "csv", "tex", "json"])
def test_tables_are_files_where_a_folder_is_named(equimetric, reported, tmp_path, form):
    code, out, err = equimetric("report", tmp_path, "--format", form, "--output", tmp_path / "tables")
    assert code == 0, err
    names = [f"{name}.{form}" for name in record_tables(reported)]
    assert sorted(file.name for file in (tmp_path / "tables").iterdir()) == sorted(names)
    assert out.count("Table: ") == len(names)
    _, printed, _ = equimetric("report", tmp_path, "--format", form)
    assert (
        "\n".join((tmp_path / "tables" / name).read_text(encoding="utf-8") for name in names).split() == printed.split()
    )


@pytest.mark.usefixtures("without_extra")
def test_without_the_extra_the_page_has_tables_and_says_what_is_missing(judged_study, tmp_path):
    page = write_report(judged_study, tmp_path).read_text(encoding="utf-8")
    assert "Here is a figure where the extra “report” is installed" in page
    assert '<figure class="chart"' not in page
    assert 'id="leaderboard-table"' in page
    assert len(page) < 500_000
    for name in ("table.md", "table.csv", "table.tex"):
        assert "margin" in (tmp_path / name).read_text(encoding="utf-8")


@pytest.mark.usefixtures("without_extra", "reported")
@pytest.mark.parametrize("form", FORMS)
def test_without_the_extra_figures_are_one_clear_sentence(equimetric, tmp_path, form, is_one_sentence):
    code, _, err = equimetric("report", tmp_path, "--format", form, "--output", tmp_path / "figures")
    assert code == 2
    assert is_one_sentence(err)
    assert "pip install 'equimetric[report]'" in err
    assert not (tmp_path / "figures").exists()
