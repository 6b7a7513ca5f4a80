"""One family of statements: nothing that a table, its exports or its page says contradicts anything else of it."""

import csv
import io
import itertools
import json
import re

import numpy as np
import pytest

from equimetric.report import to_csv, to_latex, to_markdown
from equimetric.report.answer_text import answer
from equimetric.report.sections.answer import answer_section
from equimetric.report.sections.leaderboard import leaderboard_section
from equimetric.report.tables import plain_table
from equimetric.seeding import derive_seed
from equimetric.studies.comparison import Comparison
from equimetric.studies.configuration import StatisticsConfig
from equimetric.studies.judgement import judge_study
from equimetric.studies.outcomes import ClassList
from equimetric.studies.table import comparison_table, joined_table

METRICS = ("map@r", "recall@1")
OPPOSITE = {"better": "worse", "worse": "better", "equal": "equal", "undecided": "undecided"}


def simulate(run, study_of, seed):
    """A study of a random shape: few and many methods, seeds, folds, ties, holes, baselines with and without seeds."""
    generator = np.random.default_rng(derive_seed("one family", seed))
    choose = generator.choice
    methods, seeds, folds, classes = (int(choose(sizes)) for sizes in ((2, 3, 5, 9), (1, 2, 3, 5), (1, 1, 2), (8, 60)))
    names = [f"m{i}" for i in range(methods)]
    spread, seed_spread, cells = choose([0.002, 0.03]), choose([0.0, 0.003, 0.02]), choose([0.0, 0.02])
    difficulty = generator.uniform(0.3, 0.7, classes)
    gains = {name: generator.choice([0.0, 0.001, 0.01, 0.05]) for name in names}
    by_class = {name: generator.normal(0, spread, classes) for name in (*names, "raw", "untrained")}
    if methods > 2 and seed % 3 == 0:
        by_class[names[1]], gains[names[1]] = by_class[names[0]], gains[names[0]]
    listed = ClassList(tuple(range(classes)), tuple(f"c{k}" for k in range(classes)), (4,) * classes)
    both = seed % 4 != 1

    def one(name, number, fold, gain, **changes):
        noise = generator.normal(0, seed_spread) + generator.normal(0, cells, classes)
        map_at_r = (difficulty + gain + by_class[name] + (0 if name == "raw" else noise)).clip(0, 1)
        per_class = {"map@r": map_at_r, "recall@1": (map_at_r + 0.2 - gain).clip(0, 1)}
        kept = METRICS if both else METRICS[:1]
        means = {metric: float(per_class[metric].mean()) for metric in METRICS}
        fields = {"metrics": means, "per_class": {metric: per_class[metric] for metric in kept}, "classes": listed}
        return run(name, number, fold=fold, **{**fields, **changes})

    runs = [one(name, s, f, gains[name]) for name in names for s in range(seeds) for f in range(folds)]
    if seed % 5 == 2 and seeds > 1:
        # A run of the last method failed: its seeds are fewer than those of the others.
        runs[-1] = run(names[-1], seeds - 1, fold=folds - 1, status="failed", error="NaN", metrics={})
    if seed % 7 == 3:
        # A method whose test classes are others: nothing can be compared.
        short = ClassList(listed.labels[1:], listed.names[1:], listed.queries[1:])
        runs[0] = one(names[0], 0, 0, 0.0, classes=short, per_class={"map@r": difficulty[1:]})
    runs += [one("raw", 0, f, -0.1, kind="baseline") for f in range(folds)]
    runs += [one("untrained", s, 0, -0.2, kind="baseline") for s in range(seeds)]
    return study_of(
        *runs,
        joined_runs=tuple(one(name, s, -1, gains[name]) for name in names for s in range(seeds)) if folds > 1 else (),
        table_metrics=METRICS,
        statistics=StatisticsConfig(
            estimand=str(choose(["seeds and classes", "seeds"])), baseline=names[-1] if seed % 2 else None
        ),
    )


def number(text):
    """A number as readers see it."""
    return float(text.replace("−", "-").replace("\\", ""))


class Statements:
    """Who is better than whom, by metric, as it is read in many places; each pair may be said once or often, alike."""

    def __init__(self):
        self.said = {}

    def say(self, metric, first, second, verdict, where):
        """`first` is this, compared with `second`."""
        verdict = "equal" if verdict == "practically equal" else verdict
        for pair, found in (((metric, first, second), verdict), ((metric, second, first), OPPOSITE[verdict])):
            earlier, place = self.said.setdefault(pair, (found, where))
            assert earlier == found, f"{pair}: {earlier} in {place}, {found} in {where}"

    def letters(self, metric, groups, where):
        """Rows that share a letter are not told apart, and all others are."""
        for first, second in itertools.combinations(groups, 2):
            if (metric, first, second) in self.said:
                apart = self.said[metric, first, second][0] in ("better", "worse")
                assert apart == (not set(groups[first]) & set(groups[second])), (where, first, second)

    def check_order(self, metric, means):
        """Better is transitive, has the larger mean, and is never said of what is equal to something better."""
        rows = list(means)
        for (_, first, second), (verdict, where) in list(self.said.items()):
            if (_ == metric) and verdict == "better":
                assert means[first] > means[second], (first, second, where)
        for x, y, z in itertools.permutations(rows, 3):
            known = [self.said.get((metric, *pair), ("", ""))[0] for pair in ((x, y), (y, z), (x, z))]
            assert known[:2] != ["better", "better"] or known[2] in ("better", ""), (x, y, z, known)


def read_table(text_rows, headings, references, statements, where):
    """The verdicts and letters of a table of texts."""
    for metric, prefix in (("map@r", ""), ("recall@1", "recall@1 ")):
        for reference in references:
            if f"{prefix}vs {reference}" not in headings:
                continue
            place = headings.index(f"{prefix}vs {reference}")
            for name, cells in text_rows.items():
                if cells[place] != "–":
                    verdict, difference = cells[place].split(" ")
                    statements.say(metric, name, reference, verdict, f"{where} vs {reference}")
                    if verdict in ("better", "worse"):
                        assert number(difference) * (1 if verdict == "better" else -1) >= 0
        if f"{prefix}group" in headings:
            place = headings.index(f"{prefix}group")
            groups = {name: cells[place] for name, cells in text_rows.items() if cells[place] != "–"}
            statements.letters(metric, groups, where)


def read_answer(sentences, names, statements):
    """Who leads, who is better than the rest, who is worse, and how methods stand to what is not trained."""
    text = " ".join(sentences).replace("\N{NO-BREAK SPACE}", " ")
    if match := re.match(r"(\S+) is better than (?:the other method|both other methods|all \d+ other methods)", text):
        for other in names:
            if other != match[1]:
                statements.say("map@r", match[1], other, "better", "the answer")
    if match := re.match(r"(\S+) leads with .*?; (.*?)\.(?: |$)(?=[A-Zm])", text):
        best = match[1]
        for part in re.split(r", and (?=m\d)|; ", match[2]):
            told = {"practically equal": "equal", "cannot be told apart": "undecided"}
            verdict = next((word for phrase, word in told.items() if phrase in part), None)
            for other in re.findall(r"\bm\d\b", part) if verdict else ():
                statements.say("map@r", best, other, verdict, "the answer")
    for others, best in re.findall(r"((?:m\d(?:, | and )?)+) (?:is|are) worse than (m\d)\.", text):
        for other in re.findall(r"m\d", others):
            statements.say("map@r", other, best, "worse", "the answer")
    if match := re.search(r"All methods are better than (raw|untrained) \(", text):
        for name in names:
            statements.say("map@r", name, match[1], "better", "the answer")
    if match := re.search(
        r"methods (?:is|are) better than (raw|untrained) \([^)]*\), which is not trained; (.*)\.$", text
    ):
        for part in match[2].split("; "):
            verdict = "equal" if "equal" in part else "undecided" if "apart" in part else "worse"
            for name in re.findall(r"\bm\d\b", part):
                statements.say("map@r", name, match[1], verdict, "the answer")


@pytest.mark.parametrize("seed", range(60))
def test_no_two_statements_of_a_study_contradict_each_other(run, study_of, seed):
    study = simulate(run, study_of, seed)
    statements, table = Statements(), comparison_table(study)
    trained = [row.method for row in table.rows if row.kind == "trained"]
    means = {row.method: row.cells[0].mean for row in table.rows}
    # The terminal, and print(comparison).
    headings = list(table.headings)
    texts = {row.method: list(table.texts(row)) for row in table.rows}
    read_table(texts, headings, table.references, statements, "terminal")
    _, *lines = str(Comparison(study, None)).splitlines()
    lines, remarks = lines[: len(table.rows)], lines[len(table.rows) :]
    assert all(cell in line for row, line in zip(table.rows, lines, strict=True) for cell in table.texts(row))
    assert bool(remarks) == bool(study.failed)
    assert all(" failed: NaN" in remark for remark in remarks)
    # Exports.
    for row in csv.DictReader(io.StringIO(to_csv(table))):
        for metric, prefix in (("map@r", ""), ("recall@1", "recall@1_")):
            for place, reference in enumerate(table.references):
                name = prefix if place == 0 else f"{prefix}{reference}_"
                if verdict := row.get(f"{name}verdict"):
                    statements.say(metric, row["method"], reference, verdict, "csv")
                    low, high = (row[f"{name}difference_{end}"] for end in ("low", "high"))
                    inside = not low or float(low) <= float(row[f"{name}difference"]) <= float(high)
                    assert inside
                    if verdict in ("better", "worse"):
                        assert float(low) > 0 if verdict == "better" else float(high) < 0
    plain = plain_table(table)
    for written in (to_markdown(table), to_latex(table)):
        lines = [line.replace("$-$", "−") for line in written.splitlines()]
        for row in plain.rows:
            verdicts = [cell.text for cell in row.cells if cell.text.split(" ")[0] in OPPOSITE]
            assert any(all(verdict in line for verdict in verdicts) for line in lines)
    # The page: against every row that can be chosen, letters, marks, and the answer.
    section = leaderboard_section(study)
    for metric, against in (("map@r", section["verdicts"]["against"]), *section["verdicts"]["also"].items()):
        for chosen, rows in against.items():
            for name, found in rows.items():
                statements.say(metric, name, chosen, found["verdict"], f"leaderboard against {chosen}")
                word, difference = found["brief"].split(" ")
                assert word == found["verdict"].removeprefix("practically ")
                assert number(difference) * found["difference"] >= 0
    for shown in section["rows"]:
        for cell in shown["cells"]:
            if cell["verdicts"]:
                for reference, found in zip(table.references, cell["verdicts"], strict=True):
                    if found["verdict"]:
                        statements.say(cell["metric"], shown["name"], reference, found["verdict"], "leaderboard")
    for metric in table.judged:
        groups = {row.method: row.groups[metric] for row in table.rows if metric in row.groups}
        statements.letters(metric, groups, "leaderboard")
        marked = {row.method: row.emphasis.get(metric, "") for row in table.rows if row.method in groups}
        own = {row.method: row.cells[[c.metric for c in table.columns].index(metric)].mean for row in table.rows}
        judged = [row for row in trained if row in groups]
        if len(judged) > 1:
            best = max(judged, key=own.__getitem__)
            for name in judged:
                worse = name != best and statements.said[metric, best, name][0] == "better"
                assert (marked[name] == "") == worse
            assert (marked[best] == "bold") == (sum(marked[name] != "" for name in judged) == 1)
        if metric == "map@r":
            listed = {shown["name"] for shown in section["rows"] if shown["tied"]}
            assert listed == {name for name, mark in marked.items() if mark}
        statements.check_order(metric, own)
    read_answer(answer(study, table, judge_study(study).methods), trained, statements)
    for sentence in answer_section(study)["needs"]:
        first, second = re.match(r"(m\d) and (m\d): ", sentence).groups()
        statements.say("map@r", first, second, "undecided", "what it would take")
    statements.check_order("map@r", means)
    # How many statements hold together is said once, and is how many there are.
    claims = [note for note in table.footnotes if "hold together" in note or note.startswith("The statement holds")]
    assert len(claims) == (1 if table.references and any(table.rows[-1].verdicts) else len(claims)) <= 1
    assert "hold together" not in json.dumps(section["verdicts"])
    joined = joined_table(study)
    if joined is not None:
        alone = Statements()
        read_table(
            {row.method: list(joined.texts(row)) for row in joined.rows},
            list(joined.headings),
            joined.references,
            alone,
            "joined",
        )


def test_simulated_studies_make_every_kind_of_statement(run, study_of):
    """The property above is not one of empty tables."""
    found = set()
    for seed in range(60):
        table = comparison_table(simulate(run, study_of, seed))
        for row in table.rows:
            found |= {(metric, one.verdict) for (metric, _), one in row.verdicts.items()}
            found |= set(row.emphasis.values())
    verdicts = {"better", "worse", "undecided", "practically equal"}
    assert {(metric, verdict) for metric in METRICS for verdict in verdicts} | {"bold", "tied"} <= found
