import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from equimetric.errors import EquimetricError
from equimetric.report import comparison_table, critical_difference_diagram, interval_plot, validation_curves

SVG = "{http://www.w3.org/2000/svg}"


def words(svg: str) -> list[str]:
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def draw(study):
    table = comparison_table(study)
    return interval_plot(study, table), validation_curves(study, table)


def test_the_interval_plot_names_every_method_in_the_order_of_the_table(study):
    intervals, _ = draw(study)
    names = ["untrained (baseline)", "raw pixels (baseline)", "multi_similarity", "contrastive"]
    assert [word for word in words(intervals) if word in names] == names
    assert "map@r (%)" in words(intervals)


def test_the_curves_name_trained_methods_and_both_axes(study):
    _, curves = draw(study)
    assert {"multi_similarity", "contrastive", "training step", "validation map@r (%)"} <= set(words(curves))
    assert "untrained (baseline)" not in words(curves)


def test_curves_are_means_at_the_steps_that_all_finished_runs_share(study, monkeypatch):
    from matplotlib.axes import Axes

    drawn = []
    plot = Axes.plot

    def recording_plot(axes, steps, means, *arguments, **options):
        drawn.append((steps, means))
        return plot(axes, steps, means, *arguments, **options)

    monkeypatch.setattr(Axes, "plot", recording_plot)
    validation_curves(study, comparison_table(study))
    (best_steps, best_means), (other_steps, other_means) = drawn
    assert (best_steps, other_steps) == ([0, 100], [0, 100])
    assert best_means == pytest.approx([20.0, 60.0])
    assert other_means == pytest.approx([20.0, 45.0])


def test_figures_are_deterministic_and_carry_no_date(study):
    first, second = draw(study), draw(study)
    assert first == second
    for svg in first:
        assert svg.startswith("<svg")
        assert "<metadata" not in svg
        assert "dc:date" not in svg


def test_the_ids_of_two_figures_are_disjoint_and_references_resolve(study):
    ids = []
    for svg in draw(study):
        own = set(re.findall(r'\bid="([^"]+)"', svg))
        references = set(re.findall(r'(?:url\(#|href="#)([^")]+)', svg))
        assert references
        assert references <= own
        ids.append(own)
    assert not ids[0] & ids[1]


def test_text_and_axes_use_the_colour_of_the_page(study):
    for svg in draw(study):
        assert "currentColor" in svg
        assert "#010203" not in svg
        assert "#000000" not in svg


def test_figures_ignore_matplotlib_settings_of_users(study):
    import matplotlib

    expected = draw(study)
    with matplotlib.rc_context({"font.size": 30, "axes.grid": True, "lines.linewidth": 9, "axes.spines.top": True}):
        assert draw(study) == expected
        assert matplotlib.rcParams["font.size"] == 30


def test_hostile_names_stay_text(run, study_of):
    history = ({"kind": "validation", "step": 1, "map@r": 0.5},)
    names = ["<script>alert(1)</script>", "_leading", "$x^$", "字", 'id="a" --> #010203']
    study = study_of(*(run(name, 0, 0.5, history=history) for name in names))
    for svg in draw(study):
        assert set(names) <= set(words(svg))


def test_long_names_are_shortened_and_stay_different(run, study_of):
    intervals, _ = draw(study_of(run("a" * 60 + "1", 0, 0.5), run("a" * 60 + "2", 0, 0.4)))
    shortened = [word for word in words(intervals) if "…" in word]
    assert shortened == ["a" * 18 + "…" + "a" * 16 + end for end in "12"]


def test_many_methods_look_different(run, study_of):
    from equimetric.report.figures import _appearance

    table = comparison_table(study_of(*(run(f"method {k}", 0, k / 100) for k in range(40))))
    assert len(set(_appearance(table).values())) == 40


def test_nothing_to_draw_gives_no_figure(run, study_of):
    assert draw(study_of(run("lost", status="failed", error="out of memory"))) == (None, None)
    intervals, curves = draw(study_of(run("triplet", 0, 0.5)))
    assert intervals is not None
    assert curves is None


RANKS = {"multi_similarity": 1.17, "contrastive": 2.17, "margin": 2.67, "triplet": 4.0}


def test_a_critical_difference_diagram_names_every_method_with_its_rank():
    pytest.importorskip("scikit_posthocs")
    drawn = critical_difference_diagram(RANKS, [("multi_similarity", "triplet")], 1.91)
    assert drawn == critical_difference_diagram(RANKS, [("multi_similarity", "triplet")], 1.91)
    texts = [word.strip() for word in words(drawn)]
    assert {"multi_similarity (1.17)", "(4.00) triplet", "critical difference 1.91"} <= set(texts)
    without = critical_difference_diagram(RANKS, [("multi_similarity", "triplet")])
    assert not any("critical" in word for word in words(without))


def test_its_bars_join_methods_that_are_not_different(monkeypatch):
    pytest.importorskip("scikit_posthocs")
    from matplotlib.axes import Axes

    bars = []
    plot = Axes.plot
    monkeypatch.setattr(
        Axes, "plot", lambda axes, x, y, **look: bars.append((x, look.get("marker"))) or plot(axes, x, y, **look)
    )
    critical_difference_diagram(RANKS, [("multi_similarity", "triplet")])
    assert sorted(sorted(x) for x, marker in bars if marker == "o") == [[1.17, 2.17, 2.67], [2.17, 2.67, 4.0]]


def test_long_names_that_look_alike_when_shortened_stay_apart():
    pytest.importorskip("scikit_posthocs")
    names = ["a" * 30 + f"{i}" + "b" * 30 for i in range(3)]
    drawn = critical_difference_diagram(dict(zip(names, (1.0, 2.5, 2.5), strict=True)), [])
    assert all(sum(f"{i}. aaa" in word for word in words(drawn)) == 1 for i in (1, 2, 3))


def test_without_the_extra_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "scikit_posthocs", None)
    with pytest.raises(
        EquimetricError, match=r"needs the package 'scikit-posthocs'.*pip install 'equimetric\[statistics\]'"
    ):
        critical_difference_diagram(RANKS, [])
