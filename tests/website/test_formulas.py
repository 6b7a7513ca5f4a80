"""Formulas of docstrings as MathML."""

import inspect
import re
from collections import Counter
from html import unescape
from xml.etree import ElementTree

import pytest
from website.formulas import LOWERED, RAISED, display_formula, typeset

from equimetric.components import LOSSES


def characters(text):
    """What a reader sees, in any order: a subscript may move before a superscript, a fraction has no slash."""
    while root := re.search(r"√\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)", text):
        text = text.replace(root[0], root[1])
    text = text.replace("√", "")
    for sign, shown in {**RAISED, **LOWERED, "Σ": "∑", "'": "′"}.items():
        text = text.replace(sign, shown)
    return Counter(re.sub(r"[\s_^{}`/]", "", text))


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_nothing_of_a_docstring_is_lost(name):
    loss = LOSSES[name]
    for paragraph in (inspect.getdoc(loss.definition) or "").split("\n\n"):
        html = ElementTree.fromstring(f"<p>{typeset(paragraph, loss.options)}</p>")
        assert characters("".join(html.itertext())) == characters(paragraph)


def visible(formula):
    return unescape(re.sub(r"<[^>]+>", "", formula))


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_formula_is_whole(name):
    """Its brackets have partners, and a displayed one does not go on in the prose below it."""
    html = typeset(inspect.getdoc(LOSSES[name].definition) or "", LOSSES[name].options)
    for formula in re.findall(r"<math.*?</math>", html, flags=re.DOTALL):
        text = visible(formula)
        assert all(text.count(left) == text.count(right) for left, right in ("()", "[]", "{}")), text
    for formula in re.findall(r'<math display="block".*?</math>', html, flags=re.DOTALL):
        assert not re.search(r"<mo[^>]*>[/(+=−·]</mo>(?:<mo>[,;.]</mo>)?</math>$", formula), visible(formula)


def test_the_definition_of_most_losses_is_displayed():
    shown = [typeset(inspect.getdoc(loss.definition) or "", loss.options) for loss in LOSSES.values()]
    assert sum('display="block"' in html for html in shown) > 0.9 * len(shown)


def test_scripts_fractions_and_sums():
    html = display_formula("L = 1/B Σ_{j∈P_i} e^{−s_ij}")
    assert "<mfrac><mn>1</mn><mrow><mi>B</mi></mrow></mfrac>" in html
    assert re.search(
        r"<munder><mo[^>]*>∑</mo><mrow>.*<msub><mi>P</mi><mrow><mi>i</mi></mrow></msub></mrow></munder>", html
    )
    assert (
        "<msup><mi>e</mi><mrow><mo>−</mo><msub><mi>s</mi><mrow><mi>i</mi><mi>j</mi></mrow></msub></mrow></msup>" in html
    )


def test_prose_stays_prose():
    html = typeset("The mean (of all terms) over a batch, `margin` and reduction='sum'; a < b.")
    assert html.startswith(
        "The mean (of all terms) over a batch, <code>margin</code> and <code>reduction='sum'</code>;"
    )
    assert "<math><mi>a</mi><mo>&lt;</mo><mi>b</mi></math>." in html.replace('<mspace width="0.17em"/>', "")


def test_options_stand_upright_in_a_formula():
    assert "<mtext>pos_margin</mtext>" in typeset("L = [d − pos_margin]₊ + [d − pos_margin]₊", {"pos_margin"})


def test_a_root_has_a_bar_over_all_that_stands_in_its_brackets():
    assert display_formula("√(a + b)").count("<msqrt><mi>a</mi>") == 1
    assert "(" not in display_formula("√(1 − a)")
    assert "<msqrt><mi>c</mi></msqrt>" in display_formula("2/√c")


def test_definitions_stand_below_each_other():
    html = display_formula("s_ij = s(x_i, r_j), P_i = {j: y_j = y_i}")
    assert html.count('display="block"') == 2


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_formulas_within_a_line_are_short(name):
    html = typeset(inspect.getdoc(LOSSES[name].definition) or "", LOSSES[name].options)
    for formula in re.findall(r"<math>(.*?)</math>", html):
        assert len(re.findall(r"<m[ino]\b", formula)) < 50


def test_an_option_in_prose_is_code():
    assert typeset("cut to the length clip_r, are mapped") == "cut to the length <code>clip_r</code>, are mapped"
