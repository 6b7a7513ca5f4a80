"""The pages that are made when the site is built."""

import ast
import inspect
import json
import os
import re
import tomllib
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from website.docstrings import list_columns
from website.figures import toy_spaces
from website.hooks import commands_of, draw, on_page_content, site_name
from website.our_results import our_results

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.objectives import Context
from equimetric.objectives.counterparts import LIBRARIES, counterparts
from equimetric.published import select_results
from website import (
    benchmark_pages,
    constructor_pages,
    method_pages,
    migration_pages,
    notebook_pages,
    option_cells,
    papers,
    project_pages,
    reference_pages,
    result_pages,
)

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "benchmarks" / "recorded"


@pytest.fixture(scope="module")
def pages():
    return method_pages.method_pages()


def test_every_method_has_a_page(pages):
    assert {f"methods/{name}.md" for name in em.recipes()} == set(pages) - {"methods/index.md"}
    assert all(f"]({name}.md)" in pages["methods/index.md"][1] for name in em.recipes())


def test_a_page_has_formula_curve_options_paper_and_numbers(pages):
    page = pages["methods/multi_similarity.md"][1]
    assert '<math display="block"' in page
    assert page.count("<path class=") == 3
    assert re.search(r"\| `alpha` \| `2.0` \| sharpness for positives[^|]*\| number above 0 \| 0.01 to 100 \|", page)
    assert (
        "Scott: [Multi-similarity loss with general pair weighting](https://arxiv.org/abs/1904.06627) (2019)." in page
    )
    assert "A metric learning reality check" in page
    assert (
        "A reality check on photographs of groceries (tuned)](../results/frozen-reality-check/index.md)"
        " | 41 classes in 4 folds | 128 | 50 trials; up to 1,000 steps | 47.3 ± 6.4" in page
    )
    assert "frozen EfficientNet-Lite0 (defaults)](../results/defaults/index.md) | 31 classes | 256 | no tuning" in page
    assert page.count("A metric learning reality check (2020)") == 1


def test_pages_have_titles_in_words_and_the_names_that_readers_search_for(pages):
    assert set(method_pages.FULL_TITLES) <= set(em.recipes())
    titles = {name: method_pages.full_title(recipe) for name, recipe in em.recipes().items()}
    assert len(set(titles.values())) == len(titles)
    assert all(recipe.title in titles[name] for name, recipe in em.recipes().items())
    assert pages["methods/multi_similarity.md"][0] == "Ranking\nMulti-similarity (MS)"
    assert "Also called InfoNCE, SimCLR, " in pages["methods/ntxent.md"][1]
    assert "TripletMarginLoss" in pages["methods/triplet.md"][1]
    assert "TripletMarginLoss" not in pages["methods/triplet_semihard.md"][1]


def test_the_search_finds_the_parts_of_a_name():
    separator = re.search(r"separator: '(.*)' }", (ROOT / "mkdocs.yml").read_text())[1]
    words = [word for word in re.split(separator, "losses.TripletMarginLoss(margin=0.05)") if word]
    assert words == ["losses", "Triplet", "Margin", "Loss", "margin", "0.05"]
    assert [word for word in re.split(separator, "multi_similarity") if word] == ["multi", "similarity"]


def test_published_numbers_keep_the_zeros_at_their_end(pages):
    """24.70 ± 0.13 is printed so, and stored as 24.7; numbers quoted from other papers have the digits of these."""
    page = pages["methods/contrastive.md"][1]
    assert "69.80 ± 0.38" in page
    assert "24.89 ± 0.50" in page
    numbers = re.findall(r"[\d.]+ ± [\d.]+", page.partition("A metric learning reality check (2020)")[2])
    assert numbers
    assert all(re.fullmatch(r"\d+\.\d\d ± \d+\.\d\d", number) for number in numbers)


def test_the_unit_of_opis_stands_only_where_there_is_a_column_of_it(pages):
    published = [text.partition("**Published**")[2] for _, text in pages.values() if "**Published**" in text]
    assert all(("OPIS in thousandths" in text) == ("| OPIS |" in text) for text in published)
    assert any("| OPIS |" in text for text in published)


def test_a_paper_is_named_once():
    for recipe in em.recipes().values():
        papers = recipe.paper.split("; ")
        assert len(set(papers)) == len(papers), recipe.name


def test_papers_with_a_link_are_those_of_methods():
    titles = {papers.title_of(paper) for recipe in em.recipes().values() for paper in recipe.paper.split("; ")}
    assert set(papers.read_numbers()) <= titles
    assert all(re.fullmatch(r"\d{4}\.\d{4,5}", number) for number in papers.read_numbers().values())


def test_options_of_references_are_folded_and_explained(pages):
    own, _, folded = pages["methods/arcface.md"][1].partition('??? note "Options of the references `proxies`"')
    assert "| `margin_rad` |" in own
    assert "| `sharded` |" not in own
    sharded = next(line for line in folded.splitlines() if "| `sharded` |" in line)
    assert "splits the classes over the processes" in sharded
    assert re.search(r"\| `sample_rate` \| `1.0` \| share of the classes [^|]*\| number \|", folded)


def options_on_pages():
    """(Kind, name) of a part → those of its options that some page shows."""
    shown = {}
    for recipe in em.recipes().values():
        for name, part in method_pages.option_owners(recipe).items():
            shown.setdefault((part.kind, part.name), (part, set()))[1].add(name)
    return shown


def test_every_option_has_values_and_a_short_meaning():
    for part, options in options_on_pages().values():
        for name in options:
            assert option_cells.allowed_values(part, name), (part.name, name)
            assert 0 < len(re.sub("<[^>]+>", "", option_cells.meaning(part, name))) < 120, (part.name, name)


def test_every_meaning_is_used():
    shown = {owner: options for owner, (_, options) in options_on_pages().items()}
    common, *_ = entries = option_cells.read_meanings()
    assert common == "any"
    own = {(kind, name): set(table) for kind in entries if kind != "any" for name, table in entries[kind].items()}
    assert all(options <= shown[owner] for owner, options in own.items())
    left = [name for owner, options in shown.items() for name in options - own.get(owner, set())]
    assert all(left.count(name) > 1 for name in entries["any"])


def test_values_of_a_reduction_are_those_that_the_loss_takes():
    x, labels = torch.randn(8, 4), torch.arange(4).repeat_interleave(2)
    for loss in (recipe.parts()[0] for recipe in em.recipes().values()):
        if "reduction" in loss.options:
            sizes = em.recipes()[loss.name].context_options(Context(classes=4, dim=4, images=8))
            for word in re.findall(r"\w+", option_cells.allowed_values(loss, "reduction")):
                assert em.objective(loss.name, reduction=word, **sizes)(x, labels).isfinite().all()
            if "query" not in option_cells.allowed_values(loss, "reduction"):
                with pytest.raises(EquimetricError, match="no reduction 'query'"):
                    em.objective(loss.name, reduction="query", **sizes)


def test_the_first_line_of_a_method_is_typeset(pages):
    assert "<msub><mi>s</mi><mrow><mi>j</mi></mrow></msub>" in pages["methods/smooth_ap.md"][1].split("```")[0]
    row = next(line for line in pages["methods/index.md"][1].splitlines() if "| `smooth_ap` |" in line)
    assert "<math>" in row
    assert row.count("|") == 4


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
            assert migration_pages.shown_code(row) in text
            assert row.reason in text
    pinned = (ROOT / "constraints.txt").read_text()
    assert f"pytorch-metric-learning=={migration_pages.VERSIONS['pytorch-metric-learning']}\n" in pinned


def test_what_stands_in_a_loop_runs_here_in_its_order():
    code = re.search(r"```python\n(.*?)```", migration_pages.VARIABLES, flags=re.DOTALL)[1]
    names = {}
    exec(code, names)
    text = migration_pages.migration_pages()["migrating/pytorch-metric-learning.md"][1]
    for theirs, (ours, why) in migration_pages.LOOP.items():
        assert f"| `{theirs}` | `{ours}`" in text
        assert why in text
        if "parameters()" in ours:
            names["objective"] = em.objective("arcface", classes=names["classes"], dim=names["dim"])
        exec(ours, names)
    assert "## In the loop" not in migration_pages.migration_pages()["migrating/open-metric-learning.md"][1]
    assert "seed=35" not in text
    assert "em.objective('manifold', classes=classes, dim=dim, proxies=4)" in text


def test_tables_of_migration_have_heads_wrap_and_put_the_reason_below_the_code():
    page = migration_pages.migration_pages()["migrating/pytorch-metric-learning.md"][1].partition("## Losses")[2]
    assert page.count('<div class="migration" markdown>') == page.count("| theirs | here, and why | verdict |") == 13
    assert "| `losses.CosFaceLoss(classes, dim, margin=0.35, scale=64).get_logits(embeddings)` |" in page
    assert "equal except: some classes of a single sample; a batch of a single class; every class once |" in page
    assert "temperature=0.5)`<br>Squared distances of unit vectors" in page
    assert all(line.count("|") == 4 for line in page.splitlines() if line.startswith("|"))
    assert ".migration td code { white-space: normal;" in (ROOT / "docs" / "assets" / "site.css").read_text()


def test_weights_below_zero_stay_within_the_axes(pages):
    for name in ("fastap", "gor", "mean_similarity", "contextual"):
        figure = re.search(r"<figure.*?</figure>", pages[f"methods/{name}.md"][1], flags=re.DOTALL)[0]
        assert 'class="zero"' in figure
        drawn = re.findall(r'class="(?:positive|negative|dots \w+)" d="([^"]*)"', figure)
        levels = [float(y) for path in drawn for y in re.findall(r"[ML][\d.]+ ([-\d.]+)", path)]
        assert min(levels) >= 12
        assert max(levels) <= 166
    assert 'class="zero"' not in pages["methods/contrastive.md"][1]


def test_the_name_stands_above_a_figure():
    drawn = method_pages.weight_gallery()
    assert drawn.count("</figcaption><svg") == drawn.count("<figure")


def test_the_home_page_draws_in_the_colours_of_the_theme():
    home = (ROOT / "docs" / "index.md").read_text()
    drawn = draw("home", home)
    assert "<!-- figure: home -->" in home
    assert ".png" not in home
    assert drawn.count("<svg") == 2
    assert drawn.count("<circle") == 26
    assert "#" not in drawn
    ElementTree.fromstring(f"<div>{drawn}</div>")
    ticks = [float(x) for x in re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="middle">[+−]?\d+<', drawn)]
    assert len(ticks) == 12
    assert [right - left for left, right in pairwise(ticks[:6])] == pytest.approx([50.6] * 5, abs=0.15)
    assert "images/home.png" in (ROOT / "README.md").read_text()


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
    index, entries = pages["reference/index.md"][1], pages["reference/equimetric.md"][1]
    for name in em.__all__:
        assert f"[`em.{name}`](equimetric.md#equimetric.{name})" in index
        assert f'<a id="equimetric.{name}"></a>' in entries
    assert "of all that are known" not in index
    assert "\\|" not in index
    assert "::: equimetric.evaluation.evaluate.evaluate" in entries


def known_names(kind):
    """The constructors of a kind without those of components that other tests register, which no stub has."""
    return set(dir(getattr(em, kind))) & set(constructor_pages.functions(kind))


def test_the_reference_has_every_constructor_with_its_options():
    pages = reference_pages.reference_pages()
    for kind in constructor_pages.CONSTRUCTORS:
        page = pages[f"reference/constructors/{kind}.md"][1]
        for name in known_names(kind):
            assert f"## {name} {{ #equimetric.{kind}.{name} }}" in page
            assert f"em.{kind}.{name}(" in page
    losses = pages["reference/constructors/losses.md"][1]
    assert "em.losses.triplet(\n    *,\n    margin: float | None = None,\n" in losses
    assert losses.count("gather: bool = False") == 1


@pytest.mark.parametrize("kind", constructor_pages.CONSTRUCTORS)
def test_signatures_of_constructors_are_whole(kind):
    """Each is Python: its brackets close, and it says what is made."""
    page = constructor_pages.constructor_page(kind)
    blocks = re.findall(r"```python\n(em\..*?)\n```", page, flags=re.DOTALL)
    signatures = [text for block in blocks for text in block.split("\n\n")]
    assert len(signatures) >= len(known_names(kind))
    for text in signatures:
        shown = text.removeprefix(f"em.{kind}.").replace("    ...,\n", "    more: object,\n")
        assert ast.parse(f"def {shown}: ...").body[0].returns is not None


def test_continued_lines_of_a_column_stay_with_their_name():
    column = "far    target share\ncost   the least cost, of a pair and its\n       probability"
    assert list_columns(column) == "* `far`: target share\n* `cost`: the least cost, of a pair and its probability"
    long = "far    target share\nworst, violations, exceedances\n       by name\ncost   the least"
    assert list_columns(long).splitlines()[1] == "* `worst, violations, exceedances`: by name"
    assert "* `gallery_…`: " in list_columns(inspect.getdoc(em.evaluate_identification))


def test_the_reference_shows_no_internals():
    pages = reference_pages.reference_pages()
    text = "\n".join(page for _, page in pages.values())
    assert "May import" not in text
    assert not re.search(r"\brooms?\b", text, flags=re.IGNORECASE)
    assert "* `Hinge, distance, sum_hinges`: [d" in pages["reference/ops.md"][1]
    assert "build_objective" not in pages["reference/objectives.md"][1]
    objective = text.partition("::: equimetric.objectives.objective.Objective\n")[2].partition(":::")[0]
    assert '"!^compute_listed$", ' in objective


def test_results_and_contributing_are_pages():
    assert "results/defaults/index.md" in result_pages.result_pages()
    assert "](../studies.md#protocols)" in result_pages.result_pages()["results/glyphs-reality-check/index.md"][
        1
    ].replace("../../", "../")


def test_the_results_say_what_came_out():
    index = result_pages.result_pages()["results/index.md"][1]
    studies = {file.parent.name: file.read_text() for file in (ROOT / "results").glob("*/README.md")}
    assert set(studies) == set(result_pages.OUTCOMES)
    for name, outcome in result_pages.OUTCOMES.items():
        assert outcome in index
        assert all(re.search(rf"\b{number}\b", studies[name]) for number in re.findall(r"\d+(?:\.\d+)?", outcome))


def test_files_of_the_repository_are_pages_under_their_titles():
    pages = project_pages.project_pages()
    titles = ["Contributing", "Security policy", "Citation", "Licence", "Changelog"]
    assert [title for title, _ in pages.values()] == titles
    assert all((ROOT / file).exists() for file in project_pages.PROJECT_FILES)
    assert "@software{equimetric" in pages["project/citation.md"][1]


def test_notebooks_are_pages_with_text_and_code_to_download():
    pages = notebook_pages.notebook_pages()
    title, text = pages["notebooks/threshold_consistency.md"]
    assert title == "Does one threshold treat all classes alike?"
    assert "```python\nother = run.embed(" in text
    assert "```text\nAt FAR 0.01:\n" in text
    assert text.count('src="data:image/png;base64,') == 1
    assert "(threshold_consistency.ipynb){ .md-button download=" in text
    assert site_name("docs/notebooks/threshold_consistency.ipynb") in pages


def test_the_navigation_names_every_page_in_order():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    named = re.findall(r"[\w./-]+\.md", navigation)
    assert sorted(named) == sorted({*map(path_in_docs, (ROOT / "docs").rglob("*.md")), "methods/index.md"})
    guides = (ROOT / "docs" / "guides" / "index.md").read_text()
    linked = [os.path.normpath(f"guides/{file}") for file in re.findall(r"\]\(([^)]+)\)", guides)]
    assert linked == named[named.index("guides/index.md") + 1 : named.index("understand/index.md")]


def test_pages_name_the_number_of_methods_in_the_registry():
    methods = len(re.findall("^### ", (ROOT / "docs" / "methods.md").read_text(), flags=re.MULTILINE))
    for page in ("design.md", "understand/five-choices.md", "understand/index.md"):
        assert re.search(rf"\b{methods} (?:unrelated )?methods", (ROOT / "docs" / page).read_text())


def test_the_commands_of_a_console_block_are_copied_without_prompts_and_output():
    assert commands_of("$ make demo\nfive methods\n$ long \\\n  --option 1\n42\n") == "make demo\nlong \\\n  --option 1"
    block = '<div class="highlight"><pre><span class="gp">$ </span>a &lt;b "c"\n<span class="go">out</span></pre></div>'
    assert 'data-copy="a &lt;b &quot;c&quot;"' in on_page_content(block)
    plain = '<div class="highlight"><pre><code>print(1)</code></pre></div>'
    assert on_page_content(plain) == plain


def test_sentences_on_benchmarks_have_the_figures_of_their_records():
    shown = tomllib.loads((ROOT / "benchmarks" / "shown.toml").read_text())
    records = {file.stem: json.loads(file.read_text())["output"] for file in RECORDS.glob("*.json")}
    rows = [line.split() for line in records["loading"].splitlines() if re.match(r"\d+×", line)]
    ratios = [float(row[5]) for row in rows if row[2] == "1"]
    gains = [int(cached) / int(row[4]) for row in rows for cached in row[6:]]
    assert f"{min(ratios)} to {max(ratios)} times" in shown["loading"]
    assert f"{min(gains):.0f} to {max(gains):.0f} times" in shown["loading"]
    for name in ("gallery", "gallery, AVX2"):
        assert search_range(records["search"], name, 1) in shown["search"]
        assert search_range(records["search"], name, 512, 1000, 10000) in shown["search"]


def record_output(name):
    return json.loads((RECORDS / f"{name}.json").read_text())["output"]


def span(values):
    """What a page says of several ratios."""
    low, high = (f"{value:.{1 if value >= 1.05 else 2}f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def search_range(output, name, *sizes):
    """Ratios to the fastest peer for these numbers of queries."""
    counts = [int(count) for count in re.search(r"at a time:([\d ]+?) +MB", output)[1].split()]
    row = next(line for line in output.splitlines() if line.startswith(f"{name} ÷ fastest peer"))
    ratios = dict(zip(counts, map(float, re.findall(r"([\d.]+) \[", row)), strict=True))
    return span([ratios[size] for size in sizes])


def loss_ratios(output, batch):
    """Method → time of the peer by ours, at one batch size."""
    block = re.search(rf"B = {batch},.*?(?:\n\n|\Z)", output, re.DOTALL)[0]
    return {name: float(ratio) for name, ratio in re.findall(r"^(\w+) +[\d.]+ +[\d.]+ +([\d.]+)$", block, re.M)}


def test_rates_of_false_alarms_are_those_of_the_record():
    rows = re.findall(r"^(as before|crowded) +(\d+) +\d+ +([\d.]+) +([\d.]+) +([\d.]+)$", record_output("drift"), re.M)
    before = zip(*((float(rate) for rate in row[2:]) for row in rows if row[0] == "as before"), strict=True)
    means = [sum(rates) / len(rates) for rates in before]
    sentence = (
        "{:.1f} % of checks without labels raise an alarm, {:.1f} % with the number of classes and {:.1f} % with labels"
    )
    assert max(means) <= 1
    highest = max(float(rate) for row in rows if row[0] == "as before" for rate in row[2:])
    assert f"in no row more than {highest:.1f} %" in (ROOT / "docs" / "evaluation.md").read_text()
    assert sentence.format(*means) in " ".join((ROOT / "docs" / "evaluation.md").read_text().split())
    assert sentence.format(*means) in (ROOT / "benchmarks" / "shown.toml").read_text()


def test_speeds_in_the_readme_are_those_of_the_records():
    """Every ratio of the table of costs is computed again from the record of its script."""
    section = (ROOT / "README.md").read_text().partition("## What it costs")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "`" in line]
    shown = {(what, other): ratio for what, other, ratio, script in (row for row in rows if len(row) == 4)}
    losses = {batch: loss_ratios(record_output("objectives"), batch) for batch in (32, 128)}
    named = {"ntxent": "NT-Xent", "smooth_ap": "Smooth-AP"}
    common = [ratio for name, ratio in losses[128].items() if name not in named]
    special = [f"{title} {losses[128][name]:.0f}" for name, title in named.items()]
    studies = re.findall(r"^(\w+) .*? ([\d.]+) \[[\d.–]+\] +([\d.]+) \[", record_output("studies"), re.M)
    assert len(studies) == 8
    heads = {
        what: ", margin loss ".join(
            span([ratio(row) for row in studies if (row[0] == "margin") == margin]) for margin in (False, True)
        )
        for what, ratio in {"peer": lambda row: float(row[2]), "bare": lambda row: 1 / float(row[1])}.items()
    }
    expected = {
        "one loss, forward and backward, batch of 32; of 128": ", ".join(
            [f"{span(losses[32].values())}; {span(common)}", *special]
        ),
        "training a head on frozen features, whole run": heads["peer"],
        "the same": heads["bare"],
    }
    searches = {
        "50,000 vectors, 1 query": ("search", [1]),
        "50,000 vectors, 16 to 10,000 queries": ("search", [16, 512, 1000, 10000]),
        "a million vectors, 1 to 512 queries": ("search-1m", [1, 16, 512]),
    }
    for what, (record, sizes) in searches.items():
        vnni, avx2 = (search_range(record_output(record), name, *sizes) for name in ("gallery", "gallery, AVX2"))
        expected[f"exact search of {what} at a time"] = f"{vnni}; without VNNI {avx2}"
    assert {what: ratio for (what, _), ratio in shown.items()} == expected


def path_in_docs(file):
    return file.relative_to(ROOT / "docs").as_posix()


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
    assert [float(value) for value in re.findall(r"F1</td><td>([\d.]+)%", drawn)] == pytest.approx(
        [99.8, 100, 100], abs=0.1
    )


def test_the_toy_spaces_have_the_fifteen_numbers_of_the_slides_beside_them():
    printed = select_results(paper="reality-check", dataset="illustration")
    expected = [f"{one.value:.1f}" for one in printed if "embedding space" in one.method]
    assert len(expected) == 15
    shown = re.findall(r"<td>[\d.]+%</td><td>([\d.]+)%</td>", toy_spaces())
    assert sorted(shown) == sorted(expected)
    rows = re.findall(r"<td>([\w@-]+)</td><td>[\d.]+%</td><td>([\d.]+)%</td>", toy_spaces())
    assert rows[:5] == [
        ("Recall@1", "99.0"),
        ("NMI", "95.6"),
        ("F1", "100.0"),
        ("R-Precision", "77.4"),
        ("MAP@R", "71.4"),
    ]
