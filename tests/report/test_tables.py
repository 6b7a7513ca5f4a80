import csv
import io
import re
from math import sqrt

import pytest
from rich.console import Console

from equimetric.report import comparison_table, print_table, to_csv, to_latex, to_markdown

# Quantiles of Student's t at 0.975, from the printed tables.
T_1_DEGREE = 12.7062047
T_2_DEGREES = 4.3026527

HOSTILE = '<script>alert("1")</script> a|b *c* $d$ e_f \\g [red]h[/red] 50% & # {i} ~ ^ `j`'


def printed(table, width=200):
    stream = io.StringIO()
    print_table(table, Console(file=stream, width=width))
    return stream.getvalue()


def csv_rows(table):
    return list(csv.DictReader(io.StringIO(to_csv(table))))


def test_cells_hold_mean_half_width_and_n_over_seeds(study):
    rows = {row.method: row for row in comparison_table(study).rows}
    three, two, one = (rows[method].cells[0] for method in ("multi_similarity", "contrastive", "raw pixels"))
    assert (three.mean, three.n) == (pytest.approx(0.62), 3)
    assert three.half_width == pytest.approx(T_2_DEGREES * 0.02 / sqrt(3))
    assert (two.mean, two.n) == (pytest.approx(0.51), 2)
    assert two.half_width == pytest.approx(T_1_DEGREE * 0.02 / sqrt(2) / sqrt(2))
    assert (one.mean, one.n) == (0.19, 1)


def test_baselines_come_first_and_both_groups_are_sorted_by_the_primary_metric(study):
    table = comparison_table(study)
    assert [row.method for row in table.rows] == ["untrained", "raw pixels", "multi_similarity", "contrastive"]
    assert [row.kind for row in table.rows] == ["baseline", "baseline", "trained", "trained"]
    assert [column.metric for column in table.columns] == ["map@r", "recall@1"]


def test_the_primary_metric_decides_the_order_and_is_the_first_column(run, study_of):
    first, second = {"a": 0.1, "b": 0.9}, {"a": 0.2, "b": 0.8}
    runs = run("one", metrics=first), run("two", metrics=second)
    by_a, by_b = (comparison_table(study_of(*runs, primary_metric=metric)) for metric in "ab")
    assert [row.method for row in by_a.rows] == ["two", "one"]
    assert [row.method for row in by_b.rows] == ["one", "two"]
    assert by_b.columns[0].metric == "b"


def test_markdown_of_the_whole_table(study):
    assert to_markdown(comparison_table(study)).splitlines() == [
        "**A tiny study**",
        "",
        "| method | runs | map@r (%) | recall@1 (%) | time per run | parameters |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| untrained (baseline) | 1 | 25.0 | 50.0 | 1.2 s | 132 k |",
        "| raw pixels (baseline) | 1 | 19.0 | 45.0 | 1.2 s | 0 |",
        r"| multi\_similarity | 3 | 62.0 ± 5.0 | 90.2 ± 0.5 | 60 s | 132 k |",
        "| contrastive | 2 of 3, 1 failed | 51.0 ± 12.7 | 80.5 ± 6.4 | 60 s | 132 k |",
        "",
        "- Mean ± half width of the 95 % t-interval over n runs (n in the column “runs”) "
        "that differ in their seed only.",
        "- Baselines are not trained; a baseline with one run (n = 1) has no interval.",
        "- Failed runs, not in the means: contrastive (1 of 3: the loss became NaN at step 340).",
        r"- Waived: training budget (steps are 1 for a): as \<published\>.",
        "- Not fair: embedding dimension (model.dim is 4 for a, 8 for b).",
    ]


def test_csv_keeps_stored_units_and_full_precision(study):
    rows = {row["method"]: row for row in csv_rows(comparison_table(study))}
    trained, baseline = rows["multi_similarity"], rows["raw pixels"]
    assert float(trained["map@r_mean"]) == pytest.approx(0.62, abs=1e-12)
    assert float(trained["map@r_half_width"]) == pytest.approx(T_2_DEGREES * 0.02 / sqrt(3), rel=1e-6)
    assert (trained["kind"], trained["map@r_n"], trained["parameters"]) == ("trained", "3", "131904")
    assert (baseline["kind"], baseline["map@r_half_width"], baseline["map@r_n"]) == ("baseline", "", "1")
    assert (rows["contrastive"]["done"], rows["contrastive"]["failed"]) == ("2", "1")


def test_latex_of_the_whole_tabular(study):
    text = to_latex(comparison_table(study))
    tabular = text[text.index(r"\begin{tabular}") : text.index(r"\end{tabular}")]
    assert tabular.splitlines() == [
        r"\begin{tabular}{lrrrrr}",
        r"\toprule",
        r"method & runs & map@r (\%) & recall@1 (\%) & time per run & parameters \\",
        r"\midrule",
        r"untrained (baseline) & 1 & 25.0 & 50.0 & 1.2 s & 132 k \\",
        r"raw pixels (baseline) & 1 & 19.0 & 45.0 & 1.2 s & 0 \\",
        r"\midrule",
        r"multi\_similarity & 3 & 62.0 $\pm$ 5.0 & 90.2 $\pm$ 0.5 & 60 s & 132 k \\",
        r"contrastive & 2 of 3, 1 failed & 51.0 $\pm$ 12.7 & 80.5 $\pm$ 6.4 & 60 s & 132 k \\",
        r"\bottomrule",
    ]
    assert r"\caption{A tiny study.}" in text
    below = text[text.index(r"\end{tabular}") :]
    assert r"\footnotesize Mean $\pm$ half width of the 95 \% t-interval" in below


def test_the_terminal_shows_every_number_and_footnote(study):
    text = printed(comparison_table(study))
    for expected in ("62.0 ± 5.0", "51.0 ± 12.7", "raw pixels (baseline)", "2 of 3, 1 failed", "contrastive (1 of 3:"):
        assert expected in text


def test_a_narrow_terminal_gets_blocks_that_repeat_the_method_and_lose_nothing(study):
    text = printed(comparison_table(study), width=80)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert text.count("multi_similarity") == 2
    for expected in ("62.0 ± 5.0", "90.2 ± 0.5", "60 s", "132 k"):
        assert expected in text


def test_a_method_whose_runs_all_failed_comes_last_and_is_counted(run, study_of):
    lost = [run("lost", seed, status="failed", error="out of memory") for seed in range(2)]
    table = comparison_table(study_of(*lost, run("weak", 0, 0.1)))
    assert [(row.method, row.done, row.failed, row.cells) for row in table.rows][1] == ("lost", 0, 2, (None,))
    assert "| lost | 0 of 2, 2 failed | – | – | – |" in to_markdown(table)
    assert "Failed runs, not in the means: lost (2 of 2: out of memory)." in table.footnotes
    assert csv_rows(table)[1] == {
        "method": "lost", "kind": "trained", "done": "0", "failed": "2", "map@r_mean": "", "map@r_half_width": "",
        "map@r_n": "0", "seconds": "", "parameters": "",
    }  # fmt: skip


def test_a_study_whose_runs_all_failed_still_has_a_table(run, study_of):
    table = comparison_table(study_of(run("lost", status="failed", error="out of memory")))
    assert "0 of 1, 1 failed" in to_markdown(table)


def test_one_seed_has_no_interval_and_the_footnote_says_so(run, study_of):
    table = comparison_table(study_of(run("triplet", 0, 0.5)))
    assert "| triplet | 1 | 50.0 |" in to_markdown(table)
    assert "±" not in to_markdown(table)
    assert table.footnotes == (
        "A method with one finished run (n = 1) has no interval: its spread over seeds is unknown.",
    )


def test_equal_numbers_of_runs_are_stated_in_the_footnote(run, study_of):
    table = comparison_table(study_of(*(run("triplet", seed, 0.5 + seed / 100) for seed in range(3))))
    assert table.footnotes == (
        "Mean ± half width of the 95 % t-interval over n = 3 runs that differ in their seed only.",
    )


def test_a_run_that_lacks_a_metric_lowers_the_n_of_that_cell_only(run, study_of):
    table = comparison_table(
        study_of(
            run("triplet", 0, metrics={"map@r": 0.5, "nmi": 0.6}),
            run("triplet", 1, metrics={"map@r": 0.5, "nmi": 0.6}),
            run("triplet", 2, metrics={"map@r": 0.5, "nmi": float("nan")}),
        )
    )
    assert "| triplet | 3 | 50.0 ± 0.0 | 60.0 ± 0.0 (n = 2) |" in to_markdown(table)
    assert "(n = …) in a cell: only n runs have a finite value of that metric." in table.footnotes


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((0.50, 0.54), "52.0 ± 25.4"),
        ((0.500, 0.501), "50.05 ± 0.64"),
        ((0.50000, 0.50001), "50.00 ± 0.01"),
        ((0.0004, 0.0005), "0.00045 ± 0.00064"),
        ((12.0, 14.0), "13 ± 13"),
        ((-0.5, 0.5), "0.0 ± 6.4"),
        ((1.5,), "1.500"),
    ],
)
def test_precision_follows_the_interval_and_only_fractions_become_percent(run, study_of, values, shown):
    table = comparison_table(study_of(*(run("triplet", seed, value) for seed, value in enumerate(values))))
    assert table.texts(table.rows[0])[2] == shown


def test_one_wide_interval_does_not_reduce_the_digits_of_others(run, study_of):
    spreads = {"narrow": 0.0001, "usual": 0.02, "wide": 0.1}
    runs = [run(name, seed, 0.5 + seed * spread) for name, spread in spreads.items() for seed in range(2)]
    table = comparison_table(study_of(*runs))
    assert {row.method: table.texts(row)[2] for row in table.rows} == {
        "narrow": "50.01 ± 0.06",
        "usual": "51.00 ± 12.71",
        "wide": "55.00 ± 63.53",
    }


@pytest.mark.parametrize(("seconds", "shown"), [(1.24, "1.2 s"), (61.4, "61 s"), (150, "2.5 min"), (9000, "2.5 h")])
def test_durations_are_readable(run, study_of, seconds, shown):
    assert comparison_table(study_of(run("triplet", 0, 0.5, seconds=seconds))).rows[0].duration == shown


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [(0, "0"), (999, "999"), (1_300, "1.30 k"), (131_904, "132 k"), (999_700, "1.00 M"), (25_557_032, "25.6 M")],
)
def test_sizes_are_readable(run, study_of, parameters, shown):
    assert comparison_table(study_of(run("triplet", 0, 0.5, parameters=parameters))).rows[0].size == shown


def test_markdown_shows_hostile_names_literally(run, study_of):
    line = to_markdown(comparison_table(study_of(run(HOSTILE, 0, 0.5)))).splitlines()[4]
    assert len(re.findall(r"(?<!\\)\|", line)) == 6, "the name must not open a cell of its own"
    cell = re.split(r"(?<!\\)\|", line)[1].strip()
    assert re.sub(r"\\(\W|_)", r"\1", cell) == HOSTILE
    assert not re.search(r"(?<!\\)[<>*_`$\[\]~#&]", cell)


def test_latex_shows_hostile_names_literally(run, study_of):
    text = to_latex(comparison_table(study_of(run(HOSTILE, 0, 0.5))))
    assert (
        r"\textless{}script\textgreater{}alert("
        r'"1")\textless{}/script\textgreater{} a\textbar{}b {*}c{*} \$d\$ e\_f \textbackslash{}g '
        r"{[}red{]}h{[}/red{]} 50\% \& \# \{i\} \textasciitilde{} \textasciicircum{} `j` & 1 & 50.0 & 60 s & 132 k \\"
    ) in text


@pytest.mark.parametrize("name", [HOSTILE, 'comma, "quote"', "two\nlines"])
def test_csv_round_trips_names(run, study_of, name):
    rows = csv_rows(comparison_table(study_of(run(name, 0, 0.5))))
    assert [row["method"] for row in rows] == [name.replace("\n", " ")]


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1+1"])
def test_csv_escapes_spreadsheet_formulas(run, study_of, name):
    rows = csv_rows(comparison_table(study_of(run(name, 0, 0.5))))
    assert rows[0]["method"] == "'" + name.strip()


def test_the_terminal_shows_markup_literally_and_no_control_characters(run, study_of):
    text = printed(comparison_table(study_of(run("[red]h[/red] \x1b[2J\x00", 0, 0.5), title="[bold]t[/bold]")))
    assert "[red]h[/red] �[2J�" in text
    assert "[bold]t[/bold]" in text
    assert "\x1b" not in text
    assert "\x00" not in text
