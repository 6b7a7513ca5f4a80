import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "data.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_run_and_print_what_they_say(example, capsys):
    exec(compile(example, str(PAGE), "exec"), {})
    printed = capsys.readouterr().out
    for promised in re.findall(r"print\(.*?\)\s*# (.*)", example):
        assert promised.partition("…")[0].strip() in printed
