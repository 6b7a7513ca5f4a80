"""The answer of a study in sentences: which methods are better, which cannot be told apart, what it would take."""

from collections.abc import Mapping, Sequence

from equimetric.studies.judgement import judge_study
from equimetric.studies.records import StudyRecord
from equimetric.studies.statistics import ONE_SEED, RowComparisons, classes_needed, describe_seeds_needed, seeds_needed
from equimetric.studies.table import Column, ComparisonTable

__all__ = ["answer", "missing_runs_sentence", "undecided_sentences"]

NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"

MAX_NAMES = 8
"""Names in a sentence; the table has the others."""

NOT_BETTER = {
    "practically equal": "{be} practically equal to it",
    "undecided": "cannot be told apart from it",
    "worse": "{be} worse",
}
"""Verdict on a method against a baseline → how it stands to that."""


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
    tied = pairs.tied_with_best
    others = [name for name in pairs.rows if name not in tied]
    sentences = [best_sentence(column, scores, pairs)]
    if others and len(tied) > 1:
        sentences.append(f"{join_names(others)} {'is' if len(others) == 1 else 'are'} worse than {tied[0]}.")
    sentences += [*count_sentence(pairs), *needed_sentence(pairs), *baseline_sentence(study, scores, trained)]
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


def best_sentence(column: Column, scores: Mapping[str, str], pairs: RowComparisons) -> str:
    """The best method, those that are practically equal to it, and those that cannot be told apart from it."""
    best, *tied = pairs.tied_with_best
    methods = len(pairs.rows)
    if not tied:
        others = {2: "the other method", 3: "both other methods"}.get(methods, f"all {methods - 1} other methods")
        return f"{best} is better than {others}: its {column.metric} is {scores[best]}."
    equal = [name for name in tied if pairs.between(best, name).verdict == "practically equal"]
    undecided = [name for name in tied if name not in equal]
    parts = []
    if equal:
        margin = pairs.between(best, equal[0]).equivalence_margin
        points = " points" if column.percent else ""
        within = f"practically equal to it (within ± {column.number(margin)}{points})"
        parts.append(f"{join_names([f'{name} ({scores[name]})' for name in equal])} {is_or_are(equal)} {within}")
    if undecided:
        parts.append(f"{join_names([f'{name} ({scores[name]})' for name in undecided])} cannot be told apart from it")
    none_worse = "; none is worse" if len(tied) + 1 == methods else ""
    return f"{best} leads with a {column.metric} of {scores[best]}; {', and '.join(parts)}{none_worse}."


def count_sentence(pairs: RowComparisons) -> list[str]:
    """How many pairs are told apart; nothing of a single pair, whose verdict is the answer."""
    verdicts = [comparison.verdict for comparison in pairs.comparisons]
    count = len(verdicts)
    apart = sum(verdict in ("better", "worse") for verdict in verdicts)
    equal, undecided = verdicts.count("practically equal"), verdicts.count("undecided")
    if count == 1:
        return []
    if apart == count:
        return [f"All {count} pairs of methods can be told apart."]
    head = f"Of {count} pairs of methods, {apart or 'none'} can be told apart"
    rest = [f"{equal} {'is' if equal == 1 else 'are'} practically equal"] if equal else []
    rest += [f"{undecided} {'is' if undecided == 1 else 'are'} undecided"] if undecided else []
    return [f"{head}, {' and '.join(rest)}."]


def needed_sentence(pairs: RowComparisons) -> list[str]:
    """The seeds or classes that would decide the leader's undecided comparisons."""
    best, *tied = pairs.tied_with_best
    undecided = [pair for name in tied if (pair := pairs.between(best, name)).verdict == "undecided"]
    if not undecided:
        return []
    if any(pair.simultaneous.seeds_unknown for pair in undecided):
        return [ONE_SEED]
    seeds, classes, neither = [], [], 0
    for pair in undecided:
        if (needed := seeds_needed(pair.simultaneous, pair.equivalence_margin)) is not None:
            seeds.append(needed)
        elif (needed := classes_needed(pair.simultaneous, pair.equivalence_margin)) is not None:
            classes.append(needed)
        else:
            neither += 1
    intervals = [pair.simultaneous for pair in undecided]
    seeds_now = min(min(interval.seeds, default=0) for interval in intervals)
    classes_now = min(interval.classes for interval in intervals)
    parts = [f"{format_range(seeds)} seeds ({seeds_now} now) would settle {len(seeds)}"] if seeds else []
    parts += (
        [f"{format_range(classes)} test classes ({classes_now:,} now) would settle {len(classes)}"] if classes else []
    )
    parts += [f"{neither} would need both more seeds and more test classes"] if neither else []
    one = f"the undecided comparison with {best}"
    head = f"If the differences stay this size, of the {len(undecided)} undecided comparisons with {best}"
    if len(undecided) == 1:
        text = parts[0].removesuffix(" would settle 1")
        if neither:
            return [f"To settle {one} would take both more seeds and more test classes."]
        return [f"If the difference stays this size, {text} would settle {one}."]
    return [f"{head}, {', '.join(parts)}."]


def format_range(numbers: Sequence[int]) -> str:
    """'12', or '12 to 40'."""
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def baseline_sentence(study: StudyRecord, scores: Mapping[str, str], trained: Sequence[str]) -> list[str]:
    """How methods stand to the best of what was not trained: by verdicts, or by means where there are none."""
    means = {name: sum(values) / len(values) for name in scores if (values := study.values(name, study.primary_metric))}
    baselines = [name for name in means if name not in trained]
    if not baselines:
        return []
    best = max(baselines, key=means.__getitem__)
    label = f"{best} ({scores[best]}), which is not trained"
    methods = [name for name in trained if name in means]
    judged = judge_study(study).rows
    if judged is None or best not in judged.rows:
        below = [name for name in methods if means[name] <= means[best]]
        if below:
            return [f"The mean of {join_names(below)} does not exceed that of {label}."]
        return [f"The means of all methods exceed that of {label}; whether by more than chance was not judged."]
    verdicts = {name: judged.between(name, best).verdict for name in methods if name in judged.rows}
    parts = []
    for verdict, words in NOT_BETTER.items():
        rows = [name for name, found in verdicts.items() if found == verdict]
        parts += [f"{join_names(rows)} {words.format(be=is_or_are(rows))}"] if rows else []
    better = sum(verdict == "better" for verdict in verdicts.values())
    if not parts:
        return [f"All methods are better than {label}."]
    count = f"{better or 'None'} of {len(verdicts)} methods {'is' if better < 2 else 'are'}"
    return [f"{count} better than {label}; {'; '.join(parts)}."]


def is_or_are(rows: Sequence[str]) -> str:
    """'is' or 'are'."""
    return "is" if len(rows) == 1 else "are"


def missing_runs_sentence(study: StudyRecord) -> str:
    """'10 of 19 runs have not finished (N. Softmax 3, Margin 2).'; '' where all have."""
    missing = study.missing
    if not missing:
        return ""
    listed = join_names([f"{row} {count}" for row, count in missing.items()])
    return f"{sum(missing.values())} of {sum(study.planned.values())} runs have not finished ({listed})."


def undecided_sentences(pairs: RowComparisons) -> list[str]:
    """For each method tied with the leader, what would settle which of the two is better."""
    best, *tied = pairs.tied_with_best
    comparisons = [(name, pairs.between(best, name)) for name in tied]
    return [
        f"{best} and {name}: {describe_seeds_needed(one.simultaneous, one.equivalence_margin)}"
        for name, one in comparisons
        if one.verdict == "undecided"
    ]


def join_names(items: Sequence[str]) -> str:
    """'a, b and c', at most nine of them."""
    few = len(items) <= MAX_NAMES + 1
    *first, last = items if few else (*items[:MAX_NAMES], f"{len(items) - MAX_NAMES} others")
    return f"{', '.join(first)} and {last}" if first else last
