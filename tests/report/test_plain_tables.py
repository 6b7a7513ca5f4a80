"""Any table as plain data in every format, and names that try to break out of it."""

import csv
import io
import json
import shutil
import subprocess

import pytest
from latex_checks import check_latex_structure, compile_latex, unescaped
from rich.console import Console

from equimetric.errors import EquimetricError
from equimetric.report import (
    PlainTable,
    TableCell,
    TableColumn,
    TableRow,
    comparison_table,
    plain_table,
    print_table,
    to_csv,
    to_frame,
    to_json,
    to_latex,
    to_markdown,
)
from equimetric.report.table_data import format_share, number_cell, text_cell

HOSTILE = [
    "=cmd|'/C calc'!A0",
    "+1",
    "@SUM(A1)",
    "a | b || c",
    "100 % of 50 %",
    "a & b # c $d$ e_f ^g~ {h} \\i \\\\ \\end{table}",
    "[1] * optional",
    "% comment",
    "$unclosed",
    "} closed",
    "**bold** _italic_ `code` <b>html</b>",
    "two\nlines\tand\rmore",
    "β-VAE, α ≤ 1 − ε, “quotes” … Fehérvári, Krähenbühl, Łukasz, Đorđe",
    "中文 🙂 \u200b \u202e reversed \x1b[2J \x00",
    "\ud800 lone surrogate",
]


def table_of(*names, **changes):
    rows = tuple(
        TableRow((text_cell("method", name), number_cell("map@r", 50.0 + place, 1, 0.5)), "trained")
        for place, name in enumerate(names)
    )
    fields = {
        "title": "A table",
        "columns": (TableColumn("method", is_text=True), TableColumn("map@r", "%")),
        "rows": rows,
    }
    return PlainTable(**{**fields, **changes})


@pytest.fixture
def verdicts():
    """A table with a best method, one tied with it, and one without a value."""
    cells = [
        TableCell("62.0 ± 0.5", {"map@r_mean": 0.62, "map@r_half_width": 0.005, "map@r_n": 5}, "bold"),
        TableCell("61.8 ± 0.4", {"map@r_mean": 0.618, "map@r_half_width": 0.004, "map@r_n": 5}, "tied"),
        TableCell("–", {"map@r_mean": None, "map@r_half_width": None, "map@r_n": 0}),
    ]
    rows = tuple(TableRow((text_cell("method", name), cell)) for name, cell in zip("abc", cells, strict=True))
    columns = (TableColumn("method", is_text=True), TableColumn("map@r", "%"))
    return PlainTable("Verdicts", columns, rows, ("Bold: the best.", "Italic: tied with the best."))


def test_emphasis_in_every_format(verdicts):
    assert to_markdown(verdicts).splitlines()[4:7] == ["| a | **62.0 ± 0.5** |", "| b | *61.8 ± 0.4* |", "| c | – |"]
    latex = to_latex(verdicts)
    assert r"a & \textbf{62.0 $\pm$ 0.5} \\" in latex
    assert r"b & \underline{61.8 $\pm$ 0.4} \\" in latex
    stream = io.StringIO()
    print_table(verdicts, Console(file=stream, force_terminal=True, width=100, color_system="standard", no_color=False))
    assert "\x1b[1m62.0 ± 0.5\x1b[0m" in stream.getvalue()
    assert "\x1b[4m61.8 ± 0.4\x1b[0m" in stream.getvalue()


def test_programs_read_numbers_flags_and_units(verdicts):
    rows = list(csv.DictReader(io.StringIO(to_csv(verdicts))))
    assert rows[1] == {
        "method": "b", "map@r_mean": "0.618", "map@r_half_width": "0.004", "map@r_n": "5", "map@r_emphasis": "tied",
    }  # fmt: skip
    assert (rows[2]["map@r_mean"], rows[2]["map@r_n"], rows[2]["map@r_emphasis"]) == ("", "0", "")
    document = json.loads(to_json(verdicts))
    assert document["title"] == "Verdicts"
    assert document["columns"] == [{"name": "method", "unit": ""}, {"name": "map@r", "unit": "%"}]
    assert document["footnotes"] == list(verdicts.footnotes)
    assert document["rows"][0]["map@r_mean"] == 0.62
    assert document["rows"][2]["map@r_mean"] is None
    frame = to_frame(verdicts)
    assert frame["map@r_mean"].tolist()[:2] == [0.62, 0.618]
    assert frame["map@r_mean"].isna().tolist() == [False, False, True]
    assert frame.attrs == {"title": "Verdicts", "footnotes": list(verdicts.footnotes)}


def test_the_table_of_a_study_has_all_formats(study):
    table = comparison_table(study)
    rows = {row["method"]: row for row in json.loads(to_json(table))["rows"]}
    assert rows["contrastive"]["failed"] == 1
    assert rows["contrastive"]["map@r_mean"] == pytest.approx(0.51)
    assert rows["raw pixels"]["map@r_half_width"] is None
    frame = to_frame(table).set_index("method")
    assert frame.loc["multi_similarity", "map@r_n"] == 3
    assert frame.attrs["title"] == "A tiny study"
    assert tuple(column.heading for column in plain_table(table).columns) == table.headings


def test_numbers_that_are_not_finite_are_null_in_json():
    table = table_of("a")
    rows = (TableRow((text_cell("method", "a"), TableCell("nan", {"map@r": float("nan")}))),)
    document = json.loads(to_json(PlainTable(table.title, table.columns, rows)))
    assert document["rows"] == [{"method": "a", "map@r": None}]


def test_a_row_with_too_few_cells_is_an_error():
    with pytest.raises(EquimetricError, match="2 columns, but a row of 1 cells"):
        PlainTable("A", (TableColumn("a"), TableColumn("b")), (TableRow((TableCell("1"),)),))


def test_a_table_without_rows(tmp_path):
    empty = table_of()
    assert to_csv(empty) == "method,map@r\n"
    assert "| method | map@r (%) |" in to_markdown(empty)
    assert json.loads(to_json(empty))["rows"] == []
    assert len(to_frame(empty)) == 0
    check_latex_structure(to_latex(empty))
    print_table(empty, Console(file=io.StringIO(), width=80))


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_in_their_cell(name):
    table = table_of(name, "plain", title=name, footnotes=(name,))
    lines = to_markdown(table).splitlines()
    assert [len(unescaped(line, r"\|")) for line in lines[2:6]] == [4, 4, 4, 4]
    rows = list(csv.reader(io.StringIO(to_csv(table))))
    assert [len(row) for row in rows] == [3, 3, 3]
    assert not rows[1][0].startswith(("=", "+", "-", "@", "\t", "\r"))
    check_latex_structure(to_latex(table))
    to_json(table).encode()
    assert len(json.loads(to_json(table))["rows"]) == 2


@pytest.mark.parametrize("package", ["", r"\usepackage{booktabs}"])
def test_latex_compiles(tmp_path, study, verdicts, package):
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed; the structure is checked above")
    if package and not subprocess.run(["kpsewhich", "booktabs.sty"], capture_output=True).stdout:
        pytest.skip("the LaTeX package booktabs is not installed")
    hostile = table_of(*HOSTILE, title=" ".join(HOSTILE), footnotes=tuple(HOSTILE))
    texts = [to_latex(table) for table in (comparison_table(study), verdicts, hostile, table_of())]
    compile_latex("\n".join(texts), tmp_path, package)


def test_characters_that_latex_has_no_glyph_for_are_shown_by_number(tmp_path):
    assert r"\texttt{U+4E2D}" in to_latex(table_of("中"))
    assert r"$\alpha$ $\leq$ 1" in to_latex(table_of("α ≤ 1"))
    assert "Krähenbühl" in to_latex(table_of("Krähenbühl"))
    assert r"\texttt{U+00AB}" in to_latex(table_of("«"))


def test_every_character_that_is_passed_to_latex_compiles(tmp_path):
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    characters = [chr(code) for code in (*range(0x20, 0x250), *range(0x370, 0x400), *range(0x2010, 0x2300))]
    names = ["".join(characters[place : place + 20]) for place in range(0, len(characters), 20)]
    compile_latex(
        "\n".join(to_latex(table_of(*names[place : place + 30])) for place in range(0, len(names), 30)), tmp_path
    )


def test_shares_have_three_figures_and_halves_are_rounded_up():
    shares = [0.0, 0.000999997, 0.001, 0.0012345, 0.0375, 1 - 0.0375, 0.5, 0.99996, 1.0]
    texts = ["0", "0.100", "0.100", "0.123", "3.75", "96.3", "50.0", "100", "100"]
    assert [format_share(share) for share in shares] == texts
