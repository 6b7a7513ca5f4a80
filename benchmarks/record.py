"""Run a benchmark and keep what it printed, for the documentation: benchmarks/recorded/NAME.json, or NAME-RUN.json.

Kept are the command, the date, the machine, the versions and the load before the run, and the output word for word.

    python benchmarks/record.py objectives --batch 128 --only contrastive triplet
    python benchmarks/record.py search --as 1m --items 1000000
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent


def processor() -> str:
    """Its name where the system tells, and the number of cores."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"


def main() -> None:
    if len(sys.argv) < 2 or not (HERE / f"{sys.argv[1]}.py").exists():
        sys.exit(f"name a benchmark: {', '.join(sorted(file.stem for file in HERE.glob('*.py')))}")
    name, *options = sys.argv[1:]
    record_name = name
    if options[:1] == ["--as"]:
        record_name, options = f"{name}-{options[1]}", options[2:]
    load = os.getloadavg()[0]
    run = subprocess.run([sys.executable, HERE / f"{name}.py", *options], stdout=subprocess.PIPE, text=True, check=True)
    print(run.stdout)
    record = {
        "command": " ".join(["python", f"benchmarks/{name}.py", *options]),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": processor(),
        "versions": f"Python {platform.python_version()}, torch {version('torch')}",
        "load": f"{load:.1f} other processes were running" if load >= 1 else "nothing else was running",
        "output": run.stdout,
    }
    (HERE / "recorded").mkdir(exist_ok=True)
    (HERE / "recorded" / f"{record_name}.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
