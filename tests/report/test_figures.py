import sys
import xml.etree.ElementTree as ElementTree

import pytest

from equimetric.errors import EquimetricError
from equimetric.report import critical_difference_diagram

SVG = "{http://www.w3.org/2000/svg}"


def words(svg: str) -> list[str]:
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


RANKS = {"multi_similarity": 1.17, "contrastive": 2.17, "margin": 2.67, "triplet": 4.0}


def test_a_critical_difference_diagram_names_every_method_with_its_rank():
    pytest.importorskip("scikit_posthocs")
    drawn = critical_difference_diagram(RANKS, [("multi_similarity", "triplet")], 1.91)
    assert drawn == critical_difference_diagram(RANKS, [("multi_similarity", "triplet")], 1.91)
    texts = [word.strip() for word in words(drawn)]
    assert {"multi_similarity (1.17)", "(4.00) triplet", "critical difference 1.91"} <= set(texts)
    assert "currentColor" in drawn
    assert "#010203" not in drawn
    assert "dc:date" not in drawn
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
