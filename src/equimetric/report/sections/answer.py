"""The answer in one paragraph and one picture: which are better, which cannot be told apart, what it would take."""

from collections.abc import Mapping, Sequence
from typing import Any

from equimetric.report.interval_figure import interval_figure
from equimetric.report.section import section
from equimetric.studies.judgement import judge_study
from equimetric.studies.records import StudyRecord
from equimetric.studies.statistics import RowComparisons, describe_seeds_needed, seeds_needed
from equimetric.studies.table import ComparisonTable, comparison_table

__all__ = ["answer_section"]

NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"

MAX_NAMES = 8
"""Names in a sentence; the table has the others."""

TEMPLATE = """
<p class="answer">{{ sentences | join(" ") }}</p>
{% if failed %}
<p class="warning">{{ failed }} of {{ runs }} runs failed; <a href="#failures">their reasons</a> are listed below.</p>
{% endif %}
{% if noted %}
<p class="warning">{{ noted }} of {{ runs }} runs have <a href="#training">notes</a> below the curves of training.</p>
{% endif %}
{{ figure | chart }}
{% if needs %}
<details>
  <summary>What it would take to tell the tied methods apart</summary>
  <ul class="notes">
  {% for sentence in needs %}
    <li>{{ sentence }}</li>
  {% endfor %}
  </ul>
</details>
{% endif %}
"""


@section("answer", title="The answer", order=5, template=TEMPLATE)
def answer_section(study: StudyRecord) -> Mapping[str, Any]:
    """Sentences, the picture, and the seeds or classes that undecided pairs would need."""
    table = comparison_table(study)
    pairs = judge_study(study).pairs
    measured = any(row.cells[0] is not None for row in table.rows)
    return {
        "sentences": answer(study, table, pairs) if measured else ["No run finished, so there is nothing to compare."],
        "needs": [] if pairs is None else undecided_sentences(pairs),
        "figure": interval_figure(study, table) if measured else None,
        "failed": len(study.failed),
        "noted": sum(bool(run.notes) for run in study.runs),
        "runs": len(study.runs),
    }


def answer(study: StudyRecord, table: ComparisonTable, pairs: RowComparisons | None) -> list[str]:
    """Who is best, who is not, how sure that is."""
    column = table.columns[0]
    unit = f"{NO_BREAK_SPACE}%" if column.percent else ""
    scores = {
        row.method: f"{column.number(cell.mean)}{table.half_width(column, cell)}{unit}".replace(" ", NO_BREAK_SPACE)
        for row in table.rows
        if (cell := row.cells[0]) is not None
    }
    trained = [row.method for row in table.rows if row.kind == "trained" and row.method in scores]
    if pairs is None:
        return without_verdicts(column.metric, scores, trained)
    tied = list(pairs.tied_with_best)
    others = [name for name in pairs.rows if name not in tied]
    sentences = [best_sentence(column.metric, scores, tied, len(pairs.rows))]
    if others and len(tied) > 1:
        sentences.append(f"{names(others)} {'is' if len(others) == 1 else 'are'} worse than the best of them.")
    sentences += [count_sentence(pairs), *least_sentence(pairs, tied), *baseline_sentence(study, scores, trained)]
    return sentences


def without_verdicts(metric: str, scores: Mapping[str, str], trained: Sequence[str]) -> list[str]:
    """What can be said where no differences were judged."""
    if len(trained) < 2:
        return [f"{name} reaches a {metric} of {score}." for name, score in scores.items()]
    best = trained[0]
    return [
        f"{best} has the best mean {metric}, {scores[best]}, of {len(trained)} methods.",
        "Whether that is more than chance was not judged: it takes several seeds, and scores of every test class.",
    ]


def best_sentence(metric: str, scores: Mapping[str, str], tied: Sequence[str], methods: int) -> str:
    """The one best method, or those among which it is."""
    best = tied[0]
    if len(tied) == 1:
        return f"{best} is better than all {methods - 1} other methods: its {metric} is {scores[best]}."
    if len(tied) == methods:
        return f"No method is shown to be the best: {best} leads with a {metric} of {scores[best]}, and none is worse."
    return (
        f"The best method by {metric} is one of {len(tied)} that cannot be told from the leader: "
        f"{names([f'{name} ({scores[name]})' for name in tied])}."
    )


def count_sentence(pairs: RowComparisons) -> str:
    """How many pairs are told apart."""
    verdicts = [one.verdict for one in pairs.comparisons]
    told = sum(verdict in ("better", "worse") for verdict in verdicts)
    equal, undecided = verdicts.count("practically equal"), verdicts.count("undecided")
    text = f"Of {len(verdicts)} pairs of methods, {told} {'is' if told == 1 else 'are'} told apart"
    parts = [f"{equal} practically equal"] if equal else []
    parts += [f"{undecided} undecided"] if undecided else []
    return f"{text}, {names(parts)}." if parts else f"{text}."


def least_sentence(pairs: RowComparisons, tied: Sequence[str]) -> list[str]:
    """The seeds that would decide the leader's undecided comparisons."""
    open_ = [one for name in tied[1:] if (one := pairs.between(tied[0], name)).verdict == "undecided"]
    if not open_:
        return []
    if any(one.simultaneous.seeds_unknown for one in open_):
        return ["One seed does not tell how much seeds matter: run two or more."]
    needed = [seeds_needed(one.simultaneous, one.equivalence_margin) for one in open_]
    counted = [seeds for seeds in needed if seeds is not None]
    now = min(min(one.simultaneous.seeds, default=0) for one in open_)
    if not counted:
        return ["More seeds would not tell them from the leader: the number of test classes limits it."]
    rest = f"; for {len(needed) - len(counted)} the test classes limit it" if len(counted) < len(needed) else ""
    span = f"{min(counted)}" if min(counted) == max(counted) else f"{min(counted)} to {max(counted)}"
    return [
        f"If the differences stay this size, {span} seeds ({now} now) would tell {len(counted)} of the "
        f"{len(open_)} undecided ones from {tied[0]}{rest}."
    ]


def baseline_sentence(study: StudyRecord, scores: Mapping[str, str], trained: Sequence[str]) -> list[str]:
    """How methods stand to what was not trained."""
    means = {name: sum(values) / len(values) for name in scores if (values := study.values(name, study.primary_metric))}
    baselines = [name for name in means if name not in trained]
    if not baselines:
        return []
    best = max(baselines, key=means.__getitem__)
    below = [name for name in trained if name in means and means[name] <= means[best]]
    if below:
        return [f"{names(below)} did not exceed {best} ({scores[best]}), which is not trained."]
    return [f"All methods exceed {best} ({scores[best]}), which is not trained."]


def undecided_sentences(pairs: RowComparisons) -> list[str]:
    """For each method tied with the leader, what would settle which of the two is better."""
    best, *tied = pairs.tied_with_best
    comparisons = [(name, pairs.between(best, name)) for name in tied]
    return [
        f"{best} and {name}: {describe_seeds_needed(one.simultaneous, one.equivalence_margin)}"
        for name, one in comparisons
        if one.verdict == "undecided"
    ]


def names(given: Sequence[str]) -> str:
    """'a, b and c', at most eight of them."""
    *first, last = given if len(given) <= MAX_NAMES else (*given[:MAX_NAMES], f"{len(given) - MAX_NAMES} others")
    return f"{', '.join(first)} and {last}" if first else last
