"""Which defaults serve most methods? Validation scores of several settings; test classes are never opened.

Every method is tried in every space, a run or study file with keys that replace its own, with every setting. Gains are
over raw features, or over the start where the backbone is not frozen. Printed are, for each setting:

* mean and worst gain in MAP@R and Recall@1 of the kept weights, over methods and spaces
* the share of trials that meet the mark: at or above in MAP@R, and at most half a point below in Recall@1
* the shares whose best validation was the start, the first after it, and the last

Trials are kept in `--log` and none is repeated.

    python benchmarks/choose_defaults.py run.toml --set optimizer.lr=1e-3 --set optimizer.lr=3e-4
    python benchmarks/choose_defaults.py a.toml b.toml:model.backbone=efficientnet_lite1 --methods contrastive arcface
    python benchmarks/choose_defaults.py a.toml b.toml --set training.validate_every=50 --by method
"""

from __future__ import annotations

import argparse
import copy
import json
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import equimetric as em
from equimetric.dotted import set_dotted
from equimetric.runs.run_cache import RunCache
from equimetric.training import train_trial

METHODS = (
    "contrastive", "triplet", "triplet_semihard", "margin", "multi_similarity", "multi_similarity_miner", "smooth_ap",
    "supcon", "circle", "proxy_anchor", "proxy_nca", "normalized_softmax", "arcface", "lifted",
)  # fmt: skip
METRICS = ("map@r", "recall@1")
ALLOWED_LOSS = 0.5
"""Points of Recall@1."""

Setting = dict[str, Any]
Record = dict[str, Any]


def parse_setting(text: str) -> Setting:
    """'optimizer.lr=1e-3,training.steps=300' as keys and values; what is no TOML value is a string."""
    return {key: parse_value(value) for key, _, value in (part.partition("=") for part in text.split(",") if part)}


def parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def read_space(text: str) -> Record:
    """'FILE[:KEY=VALUE,…]' as a configuration without method; of a study, what its runs have in common."""
    file, _, changes = text.partition(":")
    values = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    values = {table: values[table] for table in ("data", "model", "batch", "optimizer", "training") if table in values}
    for key, value in parse_setting(changes).items():
        set_dotted(values, key, value)
    return {**values, "evaluation": {"metrics": list(METRICS)}}


class Trials:
    """Trials that are kept in a file of JSON lines."""

    def __init__(self, file: Path) -> None:
        self.file, self.cache = file, RunCache()
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        self.known: dict[str, Record] = {line["key"]: line["result"] for line in map(json.loads, lines)}

    def run(self, values: Record, setting: Setting, method: str) -> Record:
        """The validations of a method in a space; an empty list where it fails."""
        values = {**copy.deepcopy(values), "method": method}
        for key, value in setting.items():
            set_dotted(values, key, value)
        key = json.dumps(values, sort_keys=True)
        if key not in self.known:
            try:
                result = train_trial(values, cache=self.cache)
                self.known[key] = {"history": result.history, "seconds": result.seconds}
            except em.EquimetricError as error:
                print(f"{method}: {error}", flush=True)
                self.known[key] = {"history": [], "seconds": 0.0}
            with self.file.open("a", encoding="utf-8") as log:
                log.write(json.dumps({"key": key, "result": self.known[key]}) + "\n")
        return self.known[key]

    def reference(self, values: Record) -> tuple[float, ...]:
        """MAP@R and Recall@1 of raw features, in percent; of the start where the backbone is not frozen."""
        frozen = values.get("model", {}).get("frozen") or values["data"]["name"] == "features"
        learner = {"learner.name": "raw_features"} if frozen else {"training.steps": 1}
        start = self.run(values, learner, "contrastive")["history"][0]
        return tuple(100 * start[name] for name in METRICS)


def judge(history: Sequence[Record], reference: Sequence[float]) -> Record:
    """The gains of the kept weights, and when they were the best."""
    steps = [line["step"] for line in history]
    best = max(history, key=lambda line: line["map@r"])
    gains = [100 * best[name] - start for name, start in zip(METRICS, reference, strict=True)]
    at = steps.index(best["step"])
    return {
        "map@r": gains[0],
        "recall@1": gains[1],
        "met": gains[0] >= 0 and gains[1] >= -ALLOWED_LOSS,
        "start": at == 0,
        "first": at == 1,
        "last": at == len(steps) - 1 > 1,
        "step": best["step"],
    }


def format_row(name: str, rows: Sequence[Record]) -> str:
    """One line of the table."""
    gains = [f"{mean(values):+.2f} | {min(values):+.2f}" for values in ([row[one] for row in rows] for one in METRICS)]
    shares = [f"{mean(row[one] for row in rows):.0%}" for one in ("met", "start", "first", "last")]
    return f"| {name} | {len(rows)} | {' | '.join(gains)} | {' | '.join(shares)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spaces", nargs="+", metavar="FILE[:KEY=VALUE,…]", help="run or study files")
    parser.add_argument("--methods", nargs="+", default=METHODS, help="'all' are those of the first study file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE,…", dest="settings")
    parser.add_argument("--by", choices=("space", "method"), help="one row for each of these beside those of settings")
    parser.add_argument("--log", type=Path, default=Path("trials.jsonl"), help="where trials are kept")
    args = parser.parse_args()
    methods = args.methods
    if methods == ["all"]:
        file = args.spaces[0].partition(":")[0]
        methods = list(tomllib.loads(Path(file).read_text(encoding="utf-8"))["methods"])
    trials, settings = Trials(args.log), args.settings or [""]
    rows: dict[str, list[Record]] = defaultdict(list)
    for space in args.spaces:
        values = read_space(space)
        reference = trials.reference(values)
        for setting in settings:
            for method in methods:
                history = trials.run(values, parse_setting(setting), method)["history"]
                if history:
                    row = {**judge(history, reference), "space": space, "method": method}
                    rows[setting].append(row)
    print("| setting | trials | MAP@R | worst | R@1 | worst | met | start | first | last |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for setting, found in rows.items():
        print(format_row(setting or "defaults", found))
        for part in dict.fromkeys(row[args.by] for row in found) if args.by else ():
            print(format_row(f"– {part}", [row for row in found if row[args.by] == part]))


if __name__ == "__main__":
    main()
