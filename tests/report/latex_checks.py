"""Whether tables are LaTeX: by their structure, and by compiling them."""

import re
import subprocess

WRAPPED = r"p{0.5\linewidth}"


def unescaped(text, separator):
    return re.split(rf"(?<!\\){separator}", text)


def check_latex_structure(text):
    """Braces, environments, columns and mathematics are balanced, and every special character is escaped."""
    lines = [line for line in text.splitlines() if not line.startswith("%")]
    body = "\n".join(lines)
    assert not re.search(r"(?<!\\)%", body)
    assert len(re.findall(r"(?<!\\)\{", body)) == len(re.findall(r"(?<!\\)\}", body))
    assert len(re.findall(r"(?<!\\)\$", body)) % 2 == 0
    floats = body.count(r"\begin{table}")
    assert floats > 0
    assert re.findall(r"\\(begin|end)\{(\w+)\}", body) == floats * [
        ("begin", "table"), ("begin", "tabular"), ("end", "tabular"), ("end", "table"),
    ]  # fmt: skip
    columns = len(re.search(r"\\begin\{tabular\}\{((?:[lr]|p\{[^}]*\})+)\}", body)[1].replace(WRAPPED, "l"))
    for line in lines:
        if line.endswith(r"\\"):
            assert len(unescaped(line, "&")) == columns
    outside_mathematics = re.sub(r"(?<!\\)\$.*?(?<!\\)\$", "", body)
    # The one macro that a table defines has an argument.
    outside_mathematics = outside_mathematics.replace("#1", "")
    assert not re.search(r"(?<!\\)[#^~]", outside_mathematics)
    assert not re.search(r"(?<!\\)_", outside_mathematics)


def compile_latex(text, folder, package=""):
    document = rf"\documentclass{{article}}{package}\begin{{document}}" + "\n" + text + "\n" + r"\end{document}"
    (folder / "table.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "table.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True)
    output = done.stdout.decode(errors="replace")
    assert done.returncode == 0, output[-2000:]
    assert "Float too large" not in output
