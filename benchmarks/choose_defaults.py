"""Which defaults serve most methods? Validation scores of several settings; scores of test classes are never read.

Every method is trained from one configuration with every setting. Printed are, for each setting, the best validation
MAP@R and the Recall@1 of the same step, as means over the methods, and their gain over step 0.

    python benchmarks/choose_defaults.py run.toml --set optimizer.lr=1e-3 --set optimizer.lr=3e-3
    python benchmarks/choose_defaults.py run.toml --methods contrastive arcface --set training.steps=300 --workers 2
"""

from __future__ import annotations

import argparse
import json
import tempfile
import tomllib
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Any

METHODS = ("contrastive", "triplet_semihard", "multi_similarity", "proxy_anchor", "normalized_softmax", "lifted")
METRICS = ("map@r", "recall@1")


def parse_setting(text: str) -> dict[str, Any]:
    """'optimizer.lr=1e-3,training.steps=300' as keys and values."""
    return {
        key: tomllib.loads(f"value = {value}")["value"]
        for key, value in (assignment.split("=") for assignment in text.split(","))
    }


def apply_setting(values: dict[str, Any], setting: dict[str, Any]) -> dict[str, Any]:
    """A configuration with some dotted keys replaced."""
    changed = dict(values)
    for key, value in setting.items():
        table, _, name = key.partition(".")
        changed[table] = {**changed.get(table, {}), name: value} if name else value
    return changed


def validate(values: dict[str, Any]) -> tuple[float, ...]:
    """Best validation MAP@R and its Recall@1, and both at step 0, in percent; NaN where the run fails."""
    import equimetric as em

    with tempfile.TemporaryDirectory() as folder:
        try:
            em.train(values, folder=folder)
        except em.EquimetricError as error:
            print(f"{values['method']}: {error}", flush=True)
            return (float("nan"),) * 4
        lines = (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    validated = [line for line in map(json.loads, lines) if line["kind"] == "validation"]
    best = max(validated, key=lambda line: line["map@r"])
    return tuple(100 * line[name] for line in (best, validated[0]) for name in METRICS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, help="configuration of a run")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE,…", dest="settings")
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    values = tomllib.loads(args.config.read_text(encoding="utf-8"))
    values["evaluation"] = {"metrics": list(METRICS)}
    settings = args.settings or [""]
    jobs = [
        {**apply_setting(values, parse_setting(setting) if setting else {}), "method": method}
        for setting in settings
        for method in args.methods
    ]
    with ProcessPoolExecutor(args.workers, mp_context=get_context("spawn")) as pool:
        scores = list(pool.map(validate, jobs))
    print("| setting | method | MAP@R % | gain | R@1 % | gain |\n|---|---|---:|---:|---:|---:|")
    for index, setting in enumerate(settings):
        setting_scores = scores[index * len(args.methods) : (index + 1) * len(args.methods)]
        means = tuple(mean(column) for column in zip(*setting_scores, strict=True))
        for method, row in [*zip(args.methods, setting_scores, strict=True), ("mean", means)]:
            gains = f"{row[0]:.1f} | {row[0] - row[2]:+.1f} | {row[1]:.1f} | {row[1] - row[3]:+.1f}"
            print(f"| {setting} | {method} | {gains} |")


if __name__ == "__main__":
    main()
