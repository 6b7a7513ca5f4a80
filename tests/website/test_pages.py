"""The pages that are made when the site is built."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from website.figures import toy_spaces
from website.hooks import draw
from website.our_results import our_results

import equimetric as em
from equimetric.objectives.counterparts import LIBRARIES, counterparts
from website import benchmark_pages, method_pages, migration_pages, reference_pages, result_pages

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages():
    return method_pages.method_pages()


def test_every_method_has_a_page(pages):
    assert {f"methods/{name}.md" for name in em.recipes()} == set(pages) - {"methods/index.md", "methods.md"}
    assert all(f"]({name}.md)" in pages["methods/index.md"][1] for name in em.recipes())


def test_a_page_has_formula_curve_options_paper_and_numbers(pages):
    page = pages["methods/multi_similarity.md"][1]
    assert '<math display="block"' in page
    assert page.count("<path class=") == 3
    assert "| `alpha` | `2.0` | 0.01 to 100" in page
    assert em.recipes()["multi_similarity"].paper in page
    assert "A metric learning reality check" in page
    assert (
        "A reality check on photographs of groceries (tuned)](../results/frozen-reality-check/index.md) | 47.3 ± 6.4"
        in page
    )


@pytest.mark.parametrize("name", sorted(em.recipes()))
def test_the_example_of_every_method_runs(name):
    exec(f"import equimetric as em\n{method_pages.construction(em.recipes()[name])}", {})


def test_most_pair_losses_have_a_curve():
    drawn = method_pages.weight_gallery()
    assert drawn.count("<figure") > 40
    assert 'href="../methods/contrastive.html"' in drawn


def test_our_numbers_are_those_of_the_tables():
    found = {(one.method, one.page): one for one in our_results()}
    assert found["normalized_softmax", "glyphs-reality-check"].map_at_r == "64.6 ± 2.5"
    assert any(one.method == "p2sgrad" and one.map_at_r == "52.6" for one in our_results())
    assert {one.method for one in our_results()} <= set(em.recipes()) | {"untrained", "raw_features", "raw_pixels"}


def test_every_counterpart_is_in_its_table():
    pages = migration_pages.migration_pages()
    for library in LIBRARIES:
        text = pages[f"migrating/{library}.md"][1]
        for row in counterparts(library):
            assert all(name in text for name in row.names)
            assert row.construction in text
            assert row.reason in text
    pinned = (ROOT / "constraints.txt").read_text()
    assert f"pytorch-metric-learning=={migration_pages.VERSIONS['pytorch-metric-learning']}\n" in pinned


def test_tables_of_migration_have_heads_wrap_and_put_the_reason_below_the_code():
    page = migration_pages.migration_pages()["migrating/pytorch-metric-learning.md"][1]
    assert page.count('<div class="migration" markdown>') == page.count("| theirs | here, and why | verdict |") == 12
    assert "temperature=0.5)`<br>Squared distances of unit vectors" in page
    assert all(line.count("|") == 4 for line in page.splitlines() if line.startswith("|"))
    assert ".migration td code { white-space: normal;" in (ROOT / "docs" / "assets" / "site.css").read_text()


def test_losses_that_read_a_batch_as_a_whole_show_its_weights(pages):
    for name in ("angular", "npairs", "lifted", "pddm", "r_margin", "contextual"):
        drawn = pages[f"methods/{name}.md"][1]
        assert 'class="dots positive"' in drawn
        assert f'href="../methods/{name}.html"' in method_pages.weight_gallery()
    assert "<figure" not in pages["methods/group.md"][1]


def test_figures_are_drawn_from_the_examples_of_their_page():
    folder = ROOT / "docs" / "understand"
    drawn = {}
    for page, name in (("five-choices", "choices"), ("opis", "utility"), ("verdicts", "verdicts")):
        markdown = (folder / f"{page}.md").read_text()
        assert f"<!-- figure: {name} -->" in markdown
        drawn[name] = draw(name, markdown)
    assert drawn["choices"].count("<svg") == 6
    assert "OPIS 0.28" in drawn["utility"]
    assert "OPIS 6.13" in drawn["utility"]
    assert [drawn["verdicts"].count(f">{one}<") for one in ("practically equal", "undecided", "better")] == [1, 2, 3]


def test_the_reference_names_everything_public():
    pages = reference_pages.reference_pages()
    assert all(f"`em.{name}`" in pages["reference/index.md"][1] for name in em.__all__)
    assert "::: equimetric.evaluation.evaluate.evaluate" in pages["reference/evaluation.md"][1]


def test_results_and_contributing_are_pages():
    assert "results/defaults/index.md" in result_pages.result_pages()
    assert "](../studies.md#protocols)" in result_pages.result_pages()["results/glyphs-reality-check/index.md"][
        1
    ].replace("../../", "../")
    assert set(result_pages.project_pages()) == {"project/contributing.md", "project/changelog.md"}


def test_benchmarks_show_their_last_record_word_for_word():
    page = benchmark_pages.benchmark_pages()["benchmarks/index.md"][1]
    records = sorted((ROOT / "benchmarks" / "recorded").glob("*.json"))
    assert records
    for file in records:
        record = json.loads(file.read_text())
        assert set(record) == {"command", "date", "machine", "versions", "load", "output"}
        assert record["output"].rstrip() in page
        assert (ROOT / "benchmarks" / f"{file.stem.partition('-')[0]}.py").exists()


def test_every_benchmark_is_explained_in_a_sentence():
    """Those with a record by what it shows; those without by where their figures are."""
    shown = tomllib.loads((ROOT / "benchmarks" / "shown.toml").read_text())
    assert all((ROOT / "benchmarks" / f"{name}.py").exists() for name in shown)
    assert all(text.endswith(".") for text in shown.values())
    page = benchmark_pages.benchmark_pages()["benchmarks/index.md"][1]
    assert all(text in page for text in shown.values())


def test_the_toy_spaces_are_measured():
    drawn = toy_spaces()
    shares = [float(value) for value in re.findall(r"MAP@R</td><td>([\d.]+)%", drawn)]
    assert shares == pytest.approx([69.8, 88.2, 100.0], abs=0.1)
    assert all(float(value) > 99 for value in re.findall(r"Recall@1</td><td>([\d.]+)%", drawn))
