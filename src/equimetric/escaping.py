"""Names and messages come from users: their special characters are escaped for each output format."""

import re
import sys
import unicodedata
import warnings

__all__ = [
    "csv_text",
    "is_unicode",
    "latex_text",
    "markdown_text",
    "name_text",
    "one_line",
    "printable",
    "show_plain_warnings",
]

_MARKDOWN_SPECIALS = re.compile(r"([\\`*_\[\]<>|~#$&])")

_LATEX_MATH = {
    **{"−": "-", "≤": r"\leq", "≥": r"\geq", "≠": r"\neq", "≈": r"\approx", "∞": r"\infty", "→": r"\rightarrow"},
    **{"⁻": "^{-}", "✓": r"\surd", "✗": r"\times"},
    **{"α": r"\alpha", "β": r"\beta", "γ": r"\gamma", "δ": r"\delta", "ε": r"\epsilon", "ζ": r"\zeta", "η": r"\eta"},
    **{"θ": r"\theta", "κ": r"\kappa", "λ": r"\lambda", "μ": r"\mu", "ν": r"\nu", "ξ": r"\xi", "π": r"\pi"},
    **{"ρ": r"\rho", "σ": r"\sigma", "τ": r"\tau", "φ": r"\phi", "χ": r"\chi", "ψ": r"\psi", "ω": r"\omega"},
    **{"Γ": r"\Gamma", "Δ": r"\Delta", "Θ": r"\Theta", "Λ": r"\Lambda", "Σ": r"\Sigma", "Φ": r"\Phi", "Ω": r"\Omega"},
}

_LATEX_SPECIALS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # After a line end, LaTeX would read these as an option of that line end.
    **{character: f"{{{character}}}" for character in "[]*"},
    "±": r"$\pm$",
    "–": "--",
    **{character: f"\\{character}" for character in "{}$&#%_"},
    **{character: f"${command}$" for character, command in _LATEX_MATH.items()},
}

_LATEX_PLAIN = re.compile("[ -~¡-žŒœ‘’“”—…†‡•€™]")
_LATEX_MISSING = frozenset("«»ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲų")
"""Letters among these for which the default font encoding has no glyph."""

_REORDERING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that show what follows them in another order than it is stored."""

_SPREADSHEET_FORMULA = ("=", "+", "-", "@")


def is_unicode(text: str) -> bool:
    """Whether a text can be written in UTF-8; the name of a file need not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    """Replace control characters (terminal escapes, NUL, reordering) and lone surrogates by �; newline and tab stay."""
    return "".join(character if _is_printable(character) else "\N{REPLACEMENT CHARACTER}" for character in text)


def name_text(text: str) -> str:
    """Names and paths for a line of the terminal: printable, with line breaks and tabs replaced by �, too."""
    return printable(re.sub(r"[\n\t\u2028\u2029]", "\N{REPLACEMENT CHARACTER}", text))


def one_line(text: str) -> str:
    """Printable text with every run of white space as one space."""
    return printable(" ".join(text.split()))


def show_plain_warnings() -> None:
    """Print every later warning as one line on standard error, instead of Python's two with a path."""

    def show(message: Warning | str, *_: object) -> None:
        print(f"equimetric: warning: {one_line(str(message))}", file=sys.stderr)

    warnings.showwarning = show  # type: ignore[assignment]


def markdown_text(text: str) -> str:
    """Text that Markdown shows literally, also inside a table cell."""
    return _MARKDOWN_SPECIALS.sub(r"\\\1", one_line(text))


def latex_text(text: str) -> str:
    """Text that LaTeX typesets literally; characters that it has no glyph for by their number, U+4E2D."""
    return "".join(map(_latex_character, one_line(text)))


def _latex_character(character: str) -> str:
    if character in _LATEX_SPECIALS:
        return _LATEX_SPECIALS[character]
    if _LATEX_PLAIN.fullmatch(character) and character not in _LATEX_MISSING:
        return character
    return rf"\texttt{{U+{ord(character):04X}}}"


def csv_text(text: str) -> str:
    """Text that a spreadsheet does not read as a formula; the csv module does the quoting."""
    text = one_line(text)
    return f"'{text}" if text.startswith(_SPREADSHEET_FORMULA) else text


def _is_printable(character: str) -> bool:
    if character in _REORDERING:
        return False
    return character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cs")
