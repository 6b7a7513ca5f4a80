"""Reads a page as a suspicious reader would: works every control, and looks for what is wrong or contradicts itself."""

import base64
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

MOST = 12
"""Values of a control, rows and marks of one kind that are tried."""

WRONG = r"\bundefined\b|\bNaN\b|\bnan\b|\[object|\bInfinity\b|(^|[\s(=:,])null([\s).,;:]|$)"
"""What no reader should see: values that a script or a template did not have."""

OPPOSITE = {"better": "worse", "worse": "better"}

SCRIPT = (Path(__file__).parent / "page_walk.js").read_text(encoding="utf-8")


def ask(page: Any, question: str, *given: Any) -> Any:
    """The answer of a function of page_walk.js."""
    page.evaluate(f"() => {{ {SCRIPT} }}")
    return page.evaluate(f"(given) => pageWalk.{question}(...given)", given)


def work_controls(page: Any) -> dict[str, Any]:
    """Work every control; `faults` is what no reader should see, `worked` counts controls by kind."""
    found: dict[str, Any] = ask(page, "work", {"most": MOST, "wrong": WRONG})
    return found


def contradictions(page: Any) -> list[str]:
    """Statements of a page that contradict other statements of it."""
    state = ask(page, "read")
    if not state["rows"]:
        return list(thresholds_and_rows(page, state))
    checks = (
        answer_and_rows,
        cells_and_headings,
        verdicts_both_ways,
        letters_and_verdicts,
        counts,
        figures_and_rows,
        classes_and_rows,
    )
    found = [fault for check in checks for fault in check(state)]
    return [*found, *compare_and_leaderboard(page, state), *thresholds_and_rows(page, state)]


def verdict_of(state: dict[str, Any], row: str, chosen: str) -> str | None:
    """The verdict on a row against another; None where there is none."""
    found = state["leaderboard"]["against"].get(chosen, {}).get(row)
    return None if found is None else found["verdict"]


def judged_rows(state: dict[str, Any]) -> list[str]:
    """The trained rows that are judged."""
    against = state["leaderboard"]["against"]
    return [row["name"] for row in state["rows"] if row["kind"] == "trained" and row["name"] in against]


def answer_and_rows(state: dict[str, Any]) -> Iterator[str]:
    """The answer names the best row, gives the scores of the table, and ties the rows that the table ties."""
    answer, rows = state["answer"].replace("\N{NO-BREAK SPACE}", " "), {row["name"]: row for row in state["rows"]}
    named = re.match(r"(.+?) (?:leads with|is better than|has the best mean)", answer)
    tied = [name for name, row in rows.items() if row["tied"]]
    if named and tied and named[1] not in tied:
        yield f"the answer begins with {named[1]!r}, the table marks {tied}"
    if named and named[1] in rows:
        trained = [row for row in rows.values() if row["kind"] == "trained" and row["values"][state["metric"]]]
        sign = 1 if state["leaderboard"]["higher"] else -1
        best = max(trained, key=lambda row: sign * float(row["values"][state["metric"]]))
        if float(best["values"][state["metric"]]) != float(rows[named[1]]["values"][state["metric"]]):
            yield f"the answer begins with {named[1]!r}, the best score is that of {best['name']!r}"
    said = re.search(r"(?:leads with a \S+ of|its \S+ is) ([\d.±−]+(?: ± [\d.]+)?)", answer)
    if named and said and named[1] in rows and not rows[named[1]]["score"].startswith(said[1].rstrip(".")):
        yield f"the answer says {said[0]!r}, the table {rows[named[1]]['score']!r}"
    for name, row in rows.items():
        for said in re.findall(rf"(?:^|[,;.] |and |than ){re.escape(name)} \(([\d.,−±% ]+)\)", answer):
            if not row["score"].startswith(said.removesuffix(" %")):
                yield f"the answer gives {name!r} {said!r}, the table {row['score']!r}"
        told = re.search(rf"(?:^|[,;.] |and ){re.escape(name)} \([^)]*\)[^;.]*? cannot be told apart from it", answer)
        if told and not row["tied"]:
            yield f"the answer ties {name!r} with the best, the table does not mark it"
    if "none is worse" in answer and len(tied) < len(judged_rows(state)):
        yield f"the answer says that none is worse, the table marks {tied} alone"


def verdicts_both_ways(state: dict[str, Any]) -> Iterator[str]:
    """A against B is the opposite of B against A, word, difference and ends."""
    for against in (state["leaderboard"]["against"], *state["leaderboard"].get("also", {}).values()):
        yield from verdicts_of_a_metric(against)


def verdicts_of_a_metric(against: dict[str, Any]) -> Iterator[str]:
    """The same of one metric."""
    for one, other in combinations(against, 2):
        there, back = against[other].get(one), against[one].get(other)
        if there is None or back is None:
            if there is not back:
                yield f"{one!r} and {other!r} are judged in one direction alone"
            continue
        if back["verdict"] != OPPOSITE.get(there["verdict"], there["verdict"]):
            yield f"{one!r} against {other!r}: {there['verdict']}; the other way round: {back['verdict']}"
        if back["difference"] != -there["difference"]:
            yield f"{one!r} and {other!r} differ by {there['difference']} and by {back['difference']}"
        if numbers(back["ends"]) != [-end for end in reversed(numbers(there["ends"]))]:
            yield f"{one!r} and {other!r} differ by{there['ends']} and by{back['ends']}"
        for found in (there, back):
            word = {"practically equal": "equal"}.get(found["verdict"], found["verdict"])
            if not found["brief"].startswith(word):
                yield f"a verdict {found['verdict']!r} reads {found['brief']!r}"


def letters_and_verdicts(state: dict[str, Any]) -> Iterator[str]:
    """Rows that share a letter are not told apart by a verdict, and rows that share none are."""
    groups = {row["name"]: set(row["group"]) for row in state["rows"] if row["group"] not in ("", "–")}
    for one, other in combinations(groups, 2):
        verdict = verdict_of(state, one, other)
        if verdict is not None and (verdict in OPPOSITE) == bool(groups[one] & groups[other]):
            letters = f"{''.join(sorted(groups[one]))} and {''.join(sorted(groups[other]))}"
            yield f"{one!r} is {verdict} beside {other!r}, their letters are {letters}"
    # Rows are in the order in which the walk has sorted them.
    tied = sorted((row for row in state["rows"] if row["tied"]), key=lambda row: goodness(state, row), reverse=True)
    names = [row["name"] for row in tied]
    for row in judged_rows(state) if tied else ():
        verdict = verdict_of(state, row, names[0])
        if row not in names and verdict not in (None, "worse"):
            yield f"{row!r} is not marked as tied with {names[0]!r}, and is {verdict} beside it"
        if row in names and verdict in OPPOSITE:
            yield f"{row!r} is marked as tied with {names[0]!r}, and is {verdict} beside it"


def goodness(state: dict[str, Any], row: dict[str, Any]) -> float:
    """The score of a row by the first metric; higher is better."""
    return (1 if state["leaderboard"]["higher"] else -1) * float(row["values"][state["metric"]])


def cells_and_headings(state: dict[str, Any]) -> Iterator[str]:
    """Every cell of the leaderboard has a heading, and the rows that its filter keeps are those that it marks."""
    for row in state["rows"]:
        if row["cells"] != state["headings"]:
            yield f"{row['name']!r} has {row['cells']} cells below {state['headings']} headings"
        if row["kept"] != row["tied"]:
            does = "keeps" if row["kept"] else "leaves out"
            yield f"the filter of ties {does} {row['name']!r}, its mark says otherwise"


def counts(state: dict[str, Any]) -> Iterator[str]:
    """Pairs of methods, methods beside a baseline, and runs are counted alike everywhere."""
    judged, answer = judged_rows(state), state["answer"]
    pairs = [verdict_of(state, one, other) for one, other in combinations(judged, 2)]
    said = re.search(r"Of (\d+) pairs of methods, (\w+) can be told apart", answer)
    if said and judged:
        apart = sum(verdict in OPPOSITE for verdict in pairs)
        if (int(said[1]), said[2]) != (len(pairs), str(apart or "none")):
            yield f"{said[0]!r}, the verdicts tell {apart} of {len(pairs)} apart"
    said = re.search(r"(\w+) of (\d+) methods (?:is|are) better than (.+?) \(", answer)
    if said and judged:
        better = sum(verdict_of(state, row, said[3]) == "better" for row in judged)
        if (said[1], int(said[2])) != (str(better or "None"), len(judged)):
            yield f"{said[0]!r}, the verdicts say {better} of {len(judged)}"
    said = re.search(r"All methods are better than (.+?) \(", answer)
    if said and any(verdict_of(state, row, said[1]) not in (None, "better") for row in judged):
        yield f"{said[0]!r}, and a verdict says otherwise"
    runs = sum(int(np.prod(list(map(int, re.findall(r"\d+", row["runs"]))))) for row in state["rows"])
    for section, pattern in (("failures", r"All (\d+) runs"), ("fairness", r"(\d+) runs; ")):
        said = re.search(pattern, state["sections"].get(section, ""))
        if said and int(said[1]) != runs:
            yield f"{said[0]!r} in {section}, the table has {runs}"


def figures_and_rows(state: dict[str, Any]) -> Iterator[str]:
    """Figures show the numbers of the table."""
    rows, metric = {row["name"]: row for row in state["rows"]}, state["metric"]
    for point in values_of(state["figures"].get("intervals"), "shown"):
        row = rows.get(point["row"].removesuffix(" (baseline)"))
        if row and not row["score"].startswith(point["shown"]):
            yield f"the figure of intervals gives {point['row']!r} {point['shown']!r}, the table {row['score']!r}"
        if row and row["kind"] == "trained" and (point["kind"] == "best") != row["tied"]:
            yield f"the figure of intervals and the table do not agree whether {point['row']!r} may be the best"
    for point in values_of(state["figures"].get("accuracy-consistency"), "accuracy_low"):
        for name, scale in (("accuracy", 100), ("opis", 1000)):
            value = rows[point["method"]]["values"].get({"accuracy": "recall@1"}.get(name, name))
            if value and not np.isclose(scale * float(value), point[name]):
                yield f"the figure of consistency gives {point['method']!r} {name} {point[name]}, the table {value}"
    for figure, spec in state["figures"].items():
        base = rows.get(figure.removeprefix("improvements-"))
        for point in values_of(spec, "percent") if base and figure.startswith("improvements-") else ():
            row = rows.get(point.get("method"))
            if row and point["source"].startswith("this study"):
                value, other = (float(one["values"][metric]) for one in (row, base))
                if not np.isclose(100 * (value - other) / other, point["percent"], atol=1e-3):
                    yield f"{figure} gives {row['name']!r} {point['percent']} %, the table {value} beside {other}"


def classes_and_rows(state: dict[str, Any]) -> Iterator[str]:
    """Scores of classes have the mean of the table; a single run has them in the galleries of faults too."""
    compare = state["compare"]
    if compare is None:
        return
    weights = None if compare["metric"].startswith("macro:") else compare["counts"]
    scores = {row: class_scores(compare, row) for row in compare["scores"]}
    rows = {row["name"]: row for row in state["rows"]}
    for row, found in scores.items():
        mean, value = np.average(found, weights=weights), float(rows[row]["values"][compare["metric"]])
        if abs(mean - value) > 1 / compare["steps"]:
            yield f"the classes of {row!r} have the mean {mean}, the table says {value}"
        for name, mean, images in state["faults"].get(row, ()):
            place = compare["classes"].index(name)
            if compare["counts"][place] != images:
                yield f"{name!r} has {images} images among the faults, {compare['counts'][place]} queries elsewhere"
            if rows[row]["runs"] == "1" and abs(found[place] - mean) > 1 / compare["steps"]:
                yield f"{name!r} has {mean} among the faults of {row!r}, {found[place]} elsewhere"


def compare_and_leaderboard(page: Any, state: dict[str, Any]) -> Iterator[str]:
    """The verdict below "Compare two" is that of the table, and its counts and tables fit the scores of classes."""
    if state["compare"] is None:
        return
    compare, names = state["compare"], list(state["compare"]["scores"])
    for first, second in combinations(sample(names), 2):
        for a, b in ((first, second), (second, first)):
            words = ask(page, "readPair", [a, b])
            verdict = ask(page, "readVerdict", [a, b])
            said = re.search(r"A against B: (.*)\.$", words)
            if (said[1] if said else None) != verdict:
                yield f"compare says {words!r}, the table says of {a!r} against {b!r}: {verdict!r}"
            differences = class_scores(compare, a) - class_scores(compare, b)
            shown = [int((differences > 0).sum()), int((differences < 0).sum())]
            if f"A scores higher on {shown[0]}, B on {shown[1]}," not in words:
                yield f"compare says {words!r}, the scores of the classes say {shown}"


def thresholds_and_rows(page: Any, state: dict[str, Any]) -> Iterator[str]:
    """A method has the same OPIS, and the same rates at its certified threshold, in the explorer and in its table."""
    rows = {row["name"]: row for row in state["rows"]}
    listed = ask(page, "readCertificates")
    for name in sample(list(listed)):
        shown, cells = ask(page, "readThresholds", name), listed[name]
        if shown["opis"] != cells["opis"]:
            yield f"the explorer gives {name!r} the OPIS {shown['opis']}, its table {cells['opis']}"
        (far, *_), (frr, *_) = shown["rates"]
        if shown["exact"] and (far, frr) != (cells["far"], cells["frr"]):
            yield f"the certified threshold of {name!r} has FAR {far}, FRR {frr}, and {cells['far']}, {cells['frr']}"
        for rate, part, whole in (map(float, rate) for rate in shown["rates"]):
            if not abs(100 * part / whole - rate) <= 0.006 * rate:
                yield f"{name!r} shows {rate} % as {part} of {whole}"
        row = rows.get(name, {"runs": "", "values": {}})
        value = row["values"].get("opis")
        if row["runs"] == "1" and value and f"{1e3 * float(value):.2f}" != cells["opis"]:
            yield f"{name!r} has an OPIS of {cells['opis']} × 10⁻³ among thresholds, of {value} in the table"


def class_scores(compare: dict[str, Any], row: str) -> np.ndarray:
    """The scores of a row's classes, from two bytes each."""
    return np.frombuffer(base64.b64decode(compare["scores"][row]), "<u2") / compare["steps"]


def values_of(spec: Any, field: str) -> Iterator[dict[str, Any]]:
    """The data of a figure that have a field."""
    if isinstance(spec, dict):
        if field in spec and not isinstance(spec[field], dict):
            yield spec
        for inner in spec.values():
            yield from values_of(inner, field)
    elif isinstance(spec, list):
        for inner in spec:
            yield from values_of(inner, field)


def numbers(text: str) -> list[float]:
    """The numbers of a text, with true minus signs; none of them is minus zero."""
    return [float(one.replace("−", "-")) + 0.0 for one in re.findall(r"[−+]?\d+(?:\.\d+)?", text)]


def sample(names: list[str]) -> list[str]:
    """At most a few names, the first and the last among them."""
    places = np.linspace(0, len(names) - 1, min(6, len(names))).round().astype(int)
    return [names[place] for place in places]
