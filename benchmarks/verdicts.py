"""How often the verdicts of a study are wrong, and how often they change when it is repeated: a simulation.

Spreads of seed, class, seed × class and seed × method are those of the recorded studies in `results/`. A study has k of
their methods, a row without seeds ("raw features") and n seeds. *Wrong*: the share of studies that call any row better
or worse where no two differ (all have the same mean; classes are drawn anew, with their own differences between
methods). *Same*: the share of verdicts that are the same when the study is repeated with other seeds on the same
classes, where methods differ as they do in the recorded study; *reversed*: studies where better turned into worse.
*Decided*: verdicts of better or worse. The last line of a case is how verdicts were made before: each pair with its
own spread over seeds, one quantile by Satterthwaite, and Holm's steps.

    python benchmarks/verdicts.py --repetitions 200
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import polygamma, stdtr

from equimetric.seeding import derive_seed
from equimetric.studies.judgement import Judgement
from equimetric.studies.statistics import ClassScores, compare_rows, holm, two_way_difference
from equimetric.studies.store import load_study

RESULTS = Path(__file__).parents[1] / "results"
CASES = (
    ("frozen-reality-check", "map@r"),
    ("glyphs-reality-check", "map@r"),
    ("glyphs-reality-check", "recall@1"),
    ("learners", "map@r"),
    ("learners", "recall@1"),
)
MANY = 12
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Spreads:
    """Spreads of K methods: over seeds, of their own and in common, of single cells; class effects (K, C); means."""

    seed: Floats
    common: float
    cell: Floats
    classes: Floats
    means: Floats


def read_spreads(study: str, metric: str) -> tuple[Spreads, float]:
    """What a recorded study had, and the degrees of freedom d₀ that fit how much its spreads over seeds differ."""
    judgement = Judgement(load_study(RESULTS / study / "store"))
    found = judgement.comparisons[metric]
    scores = [judgement.scores_by(metric)[row] for row in found.rows if row in judgement.trained]
    values = np.stack([one.values for one in scores])
    k, n, c = values.shape
    by_seed, by_class = values.mean(axis=2), values.mean(axis=1)
    residual = by_seed - by_seed.mean(axis=1, keepdims=True) - by_seed.mean(axis=0) + by_seed.mean()
    cells = values - by_class[:, None] - by_seed[:, :, None] + by_seed.mean(axis=1)[:, None, None]
    cell = np.square(cells).sum(axis=(1, 2)) / ((n - 1) * (c - 1))
    seed = np.square(residual).sum(axis=1) / (n - 1) * k / (k - 1) - cell / c
    seed = np.maximum(seed, 0.05 * np.maximum(seed, 0).mean())
    common = max(float(by_seed.mean(axis=0).var(ddof=1) - seed.mean() / k), 0.0)
    effects = by_class - by_class.mean(axis=1, keepdims=True)
    own = effects - effects.mean(axis=0)
    # The effects that were measured contain the noise of cells.
    spread = own.var(axis=1, ddof=1)
    own *= np.sqrt(np.maximum(spread - cell / n, 0.1 * spread) / spread)[:, None]
    differences = [(by_seed[i] - by_seed[j]).var(ddof=1) for i, j in combinations(range(k), 2)]
    excess = float(np.var(np.log(differences), ddof=1) - polygamma(1, (n - 1) / 2))
    prior = 2 * brentq(lambda x: float(polygamma(1, x)) - excess, 1e-3, 1e6) if excess > 1e-5 else np.inf
    spreads = Spreads(np.sqrt(seed), common**0.5, np.sqrt(cell), effects.mean(axis=0) + own, by_class.mean(axis=1))
    return spreads, float(prior)


def draw(
    spreads: Spreads,
    chosen: NDArray[np.intp],
    seeds: int,
    classes: NDArray[np.intp],
    rng: np.random.Generator,
    *,
    differ: bool,
) -> dict[str, ClassScores]:
    """The rows of a study: the chosen methods, and one without seeds, the class effects of a further method."""
    *methods, raw = chosen
    c, common = len(classes), rng.normal(0, spreads.common, (seeds, 1))
    level = spreads.means.mean()
    rows = {}
    for method in methods:
        mean = spreads.means[method] if differ else level
        noise = rng.normal(0, spreads.seed[method], (seeds, 1)) + rng.normal(0, spreads.cell[method], (seeds, c))
        rows[f"m{method}"] = ClassScores(mean + spreads.classes[method, classes] + common + noise, seeds=range(seeds))
    mean = spreads.means[raw] if differ else level
    rows["raw"] = ClassScores((mean + spreads.classes[raw, classes])[None], seeds=None)
    return rows


def judge(rows: dict[str, ClassScores]) -> dict[tuple[str, str], str]:
    """The verdicts of a table."""
    found = compare_rows(rows, alike=[row for row in rows if row != "raw"])
    return {pair: found.between(*pair).verdict for pair in combinations(rows, 2)}


def judge_before(rows: dict[str, ClassScores]) -> dict[tuple[str, str], str]:
    """Satterthwaite's degrees of freedom, each pair for itself, and Holm's steps."""
    pairs = list(combinations(rows, 2))
    found = [two_way_difference(rows[a], rows[b]) for a, b in pairs]
    p = holm([2 * float(stdtr(one.degrees_of_freedom, -abs(one.mean) / one.error)) for one in found])
    return {
        pair: ("better" if one.mean > 0 else "worse") if adjusted < 0.05 else "undecided"
        for pair, one, adjusted in zip(pairs, found, p, strict=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=200)
    repetitions = parser.parse_args().repetitions
    print(f"{'study':32}{'methods':>8}{'seeds':>6}   {'':8}{'wrong':>8}{'same':>8}{'reversed':>10}{'decided':>9}")
    for study, metric in CASES:
        spreads, prior = read_spreads(study, metric)
        print(f"{study}, {metric}: d0 = {prior:.1f}", flush=True)
        for k in (2, 5, MANY):
            for seeds in (2, 3, 5):
                rng = np.random.default_rng(derive_seed("verdicts", study, metric, k, seeds))
                counts: dict[str, Counter[str]] = {"now": Counter(), "before": Counter()}
                # Twelve methods are 78 pairs, which take as long as all others together.
                repeats = repetitions if k < MANY else repetitions // 4
                for repetition in range(repeats):
                    chosen = rng.choice(len(spreads.means), k + 1, replace=False)
                    classes = rng.integers(0, spreads.classes.shape[1], spreads.classes.shape[1])
                    equal = draw(spreads, chosen, seeds, classes, rng, differ=False)
                    twice = [draw(spreads, chosen, seeds, classes, rng, differ=True) for _ in range(2)]
                    for name, how in (("now", judge), ("before", judge_before)):
                        count = counts[name]
                        count["wrong"] += any(one in ("better", "worse") for one in how(equal).values())
                        if repetition % 4 == 0:
                            first, second = map(how, twice)
                            count["pairs"] += len(first)
                            count["repeated"] += 1
                            count["same"] += sum(first[pair] == second[pair] for pair in first)
                            count["reversed"] += any(
                                {first[pair], second[pair]} == {"better", "worse"} for pair in first
                            )
                            count["decided"] += sum(one in ("better", "worse") for one in first.values())
                for name, count in counts.items():
                    print(
                        f"{'':32}{k:8}{seeds:6}   {name:8}{count['wrong'] / repeats:8.1%}"
                        f"{count['same'] / count['pairs']:8.0%}{count['reversed'] / count['repeated']:10.1%}"
                        f"{count['decided'] / count['pairs']:9.0%}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
