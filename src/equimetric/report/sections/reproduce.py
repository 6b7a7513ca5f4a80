"""Exact commands, the complete configuration, versions, and the fingerprint of the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from equimetric.report.section import section
from equimetric.studies.records import StudyRecord

__all__ = ["reproduce_section"]

ENVIRONMENT_TITLES = {
    "equimetric": "Equimetric",
    "code": "Code",
    "protocol": "Protocol version of runs",
    "python": "Python",
    "torch": "PyTorch",
    "numpy": "NumPy",
    "platform": "Platform",
    "processor": "Processor",
    "cores": "Cores",
    "cuda": "GPU",
}

TEMPLATE = """
{% if commands %}
<p class="lead">Save the configuration below as <span class="name">{{ file }}</span>, then:</p>
<pre tabindex="0" aria-label="Commands">{% for command in commands %}
{{ command }}
{% endfor %}</pre>
{% endif %}
<table class="conditions">
  <tbody>
  {% for name, value in facts.items() %}
    <tr><th scope="row">{{ name }}</th><td class="name">{{ value }}</td></tr>
  {% endfor %}
  </tbody>
</table>
{% if study.configuration %}
<details>
  <summary>Complete configuration</summary>
  <pre tabindex="0" aria-label="Complete configuration">{{ study.configuration }}</pre>
</details>
{% endif %}
"""


@section("reproduce", title="Reproduce it", link="Reproduce", order=95, template=TEMPLATE)
def reproduce_section(study: StudyRecord) -> Mapping[str, Any] | None:
    """Nothing where neither configuration nor environment are known."""
    codes = list(dict.fromkeys(run.code for run in study.runs if run.code))
    facts = {ENVIRONMENT_TITLES[name]: value for name, value in study.environment.items() if name in ENVIRONMENT_TITLES}
    if codes and "Code" not in facts:
        facts["Code"] = ", ".join(codes)
    if study.fingerprint:
        facts["Fingerprint of the data"] = study.fingerprint
    if study.protocol:
        facts["Protocol"] = study.protocol
    if not facts and not study.configuration:
        return None
    single = len(study.runs) == 1
    file = "run.toml" if single else "study.toml"
    again = [f"equimetric {verb} runs/{study.name}" for verb in ("audit", "report")]
    commands = [f"equimetric train {file}"] if single else [f"equimetric compare {file}", *again]
    return {"commands": commands if study.configuration else [], "file": file, "facts": facts}
