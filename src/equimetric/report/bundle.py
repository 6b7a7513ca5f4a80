"""The scripts of a page: Vega-Lite with its interpreter, and the files of `assets`, each allowed by its hash."""

from __future__ import annotations

import base64
import hashlib
from contextlib import suppress
from functools import cache
from importlib.resources import files

from equimetric.checksums import json_document, read_json
from equimetric.errors import EquimetricError
from equimetric.files import cache_directory, write_atomically
from equimetric.report.figure import VEGA_LITE, import_converter
from equimetric.report.palette import palette_style

__all__ = ["content_policy", "page_scripts", "page_style", "vega_bundle"]

FIRST_SCRIPT = "core.js"
"""The script that the others build on."""

SNIPPET = "window.vegaEmbed = vegaEmbed;"


@cache
def vega_bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, 0.9 MB; built in seconds, then read from the cache folder."""
    convert = import_converter()
    file = cache_directory() / "report" / f"vega-lite-{VEGA_LITE}-{convert.__version__}.json"
    if file.exists():
        # A damaged file is built again.
        with suppress(EquimetricError):
            found = read_json(file, dict, "").get("script")
            if isinstance(found, str):
                return found
    script = str(convert.javascript_bundle(SNIPPET, vl_version=VEGA_LITE))
    if "</script" in script:
        raise EquimetricError(f"vl-convert {convert.__version__} bundles a script that would end its own element")
    # A page can be written without a cache.
    with suppress(OSError):
        write_atomically(file, json_document({"script": script}))
    return script


def page_scripts(*, figures: bool) -> list[str]:
    """The scripts in the order they run; that of the figures where the page has any."""
    own = [file for file in (files("equimetric.report") / "assets").iterdir() if file.name.endswith(".js")]
    ordered = sorted(own, key=lambda file: (file.name != FIRST_SCRIPT, file.name))
    return [*([vega_bundle()] if figures else []), *(file.read_text(encoding="utf-8") for file in ordered)]


def page_style() -> str:
    """The colours of figures, then the style sheets of `assets` in the order of their names."""
    sheets = [file for file in (files("equimetric.report") / "assets").iterdir() if file.name.endswith(".css")]
    ordered = sorted(sheets, key=lambda file: (file.name != "report.css", file.name))
    return "\n".join([palette_style(), *(file.read_text(encoding="utf-8") for file in ordered)])


def content_policy(scripts: list[str], style: str) -> str:
    """The policy of a page that reaches nothing: these scripts and this style alone, images in the page."""
    allowed = " ".join(map(source_hash, scripts)) or "'none'"
    return f"default-src 'none'; img-src data:; style-src {source_hash(style)}; script-src {allowed}"


def source_hash(text: str) -> str:
    """The hash of a script or a style, which stands on lines of its own, as a policy names it."""
    text = f"\n{text}\n"
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
