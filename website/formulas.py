"""Formulas of docstrings as MathML, which browsers typeset without a script or a font from elsewhere.

The notation is that of the docstrings: `s_ij` and `Σ_{j∈P_i}` have subscripts, `e^{−γ s}` a superscript, `1/|P_i|` is a
fraction. Words between formulas stay words.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from html import escape
from typing import NamedTuple

__all__ = ["display_formula", "typeset"]

FUNCTIONS = frozenset(
    re.findall(
        r"\w+",
        "log exp mean max min argmin argmax softmax softplus sin cos tan tanh asinh var Var Cov corr relu unit rank tr "
        "LeakyReLU BN LN CE NMI AP FastAP onehot class",
    )
)
LIMITS = frozenset({"Σ", "mean", "max", "min", "argmin", "argmax"})
"""What carries its index below in a displayed formula."""

RAISED = dict(zip("⁰¹²³⁴⁺⁻⁽⁾ᵀ", "01234+−()T", strict=True))
LOWERED = dict(zip("₀₁₂₊", "012+", strict=True))
STRONG = frozenset("=Σ≤≥∈·‖√∂⊙≠∩←±∓")
OPENING, CLOSING = "([{", ")]}"

LONGEST = 24
"""Tokens of a formula within a line."""

LETTER = rf"(?:(?![{''.join([*RAISED, *LOWERED, '½', '¼'])}])[^\W\d_][\u0300-\u036f]?(?:'(?!\w))?)"
FUNCTION = "|".join(sorted(FUNCTIONS, key=len, reverse=True))
TOKEN = re.compile(
    r"(?P<code>`[^`]*`|\w+=['\"][^'\"]*['\"]|(?<!\w)'[a-zA-Z_]+'|\"[^\"]*\"|'s\b)"
    rf"|(?P<name>(?!(?:{FUNCTION})_)[a-z][a-z0-9]+(?:_[a-z0-9]+)+|[A-Za-z]+\d+)"
    r"|(?P<script>[_^](?:\{(?:[^{}]|\{[^{}]*\})*\}|[A-Za-z]+|\d+|±))"
    r"|(?P<number>\d+(?:\.\d+)?)"
    rf"|(?P<word>{LETTER}+(?:-[a-z]+)*)"
    r"|(?P<space>\s+)"
    r"|(?P<sign>.)",
    re.DOTALL,
)


class Token(NamedTuple):
    """A piece of a docstring."""

    kind: str
    text: str


def typeset(text: str, names: Collection[str] = ()) -> str:
    """A paragraph of prose and formulas as HTML; `names` are options, which may stand in a formula.

    The definition of the loss, `L = …`, is displayed on a line of its own, and so is what is too long for a phone.
    """
    html = []
    for is_formula, tokens in split(scan(text), frozenset(names)):
        if not is_formula:
            html.append("".join(map(prose, tokens)))
        elif len(tokens) > (8 if tokens[0].text == "L" else LONGEST):
            html.append(display(tokens))
        else:
            html.append(f"<math>{rows(tokens)}</math>")
    # The comma after a displayed formula stands on its line.
    displayed = r'(<math display="block"(?:(?!</math>).)*)</math>([,;.])'
    return re.sub(displayed, r"\1<mo>\2</mo></math>", "".join(html), flags=re.DOTALL)


def display_formula(source: str) -> str:
    """A formula on a line of its own; definitions that commas separate stand below each other."""
    lines: list[list[Token]] = [[]]
    depth = 0
    for token in scan(source.strip()):
        depth += (token.text in OPENING) - (token.text in CLOSING) if token.kind == "sign" else 0
        lines[-1].append(token)
        if token.text == "," and depth == 0:
            lines.append([])
    return "".join(display(line[line[0].kind == "space" :]) for line in lines)


def display(tokens: Sequence[Token]) -> str:
    return f'<math display="block" class="formula">{rows(tokens)}</math>'


def scan(text: str) -> list[Token]:
    """The tokens of a text."""
    return [Token(str(match.lastgroup), match[0]) for match in TOKEN.finditer(text)]


def prose(token: Token) -> str:
    """A token outside of formulas: what stands in backticks, or is an option, is code."""
    shown = escape(token.text.strip("`"), quote=False)
    is_code = (token.kind == "code" and token.text != "'s") or (token.kind == "name" and "_" in token.text)
    return f"<code>{shown}</code>" if is_code else shown


def split(tokens: Sequence[Token], names: frozenset[str]) -> Iterator[tuple[bool, list[Token]]]:
    """Stretches of formula and of prose, in order."""
    stretch: list[Token] = []
    for place, token in enumerate(tokens):
        if belongs_to_formula(tokens, place, names):
            stretch.append(token)
            continue
        yield from pieces(stretch)
        yield False, [token]
        stretch = []
    yield from pieces(stretch)


def belongs_to_formula(tokens: Sequence[Token], place: int, names: frozenset[str]) -> bool:
    """Whether a token may stand in a formula: everything but code and words of prose."""
    kind, text = tokens[place]
    if kind == "code":
        return False
    if kind != "word" or text in FUNCTIONS or text in names:
        return True
    if text in ("a", "A"):
        after = [token for token in tokens[place + 1 : place + 3] if token.kind != "space"]
        return not (after and after[0].kind == "word" and len(after[0].text) > 1)
    return is_product(text)


def is_product(word: str) -> bool:
    """Whether letters are factors, as in bR, kπ or a single letter, and no word."""
    letters = re.sub(r"[\u0300-\u036f']", "", word)
    return (
        len(letters) == 1 or bool(re.search(r"[α-ωΑ-Ωℓ]", letters)) or re.fullmatch("[a-z][A-Z]", letters) is not None
    )


def pieces(stretch: Sequence[Token]) -> Iterator[tuple[bool, list[Token]]]:
    """Formulas of a stretch without prose: commas and semicolons outside of brackets separate them."""
    piece: list[Token] = []
    depth = 0
    for token in stretch:
        if depth == 0 and token.text in {",", ";", ":", "."}:
            yield from trim(piece)
            yield False, [token]
            piece = []
            continue
        depth = max(0, depth + (token.text in OPENING) - (token.text in CLOSING)) if token.kind == "sign" else depth
        piece.append(token)
    yield from trim(piece)


def trim(piece: list[Token]) -> Iterator[tuple[bool, list[Token]]]:
    """The formula without spaces and single brackets around it; all prose if it has neither variable nor relation."""
    lonely = lonely_brackets(piece)
    outside = [token.kind == "space" or place in lonely for place, token in enumerate(piece)]
    start, end = 0, len(piece)
    while start < end and outside[start]:
        start += 1
    while end > start and outside[end - 1]:
        end -= 1
    inner = piece[start:end]
    strong = any(kind == "script" or (kind == "word" and is_product(text)) or text in STRONG for kind, text in inner)
    yield False, piece[:start]
    yield strong, inner
    yield False, piece[end:]


def lonely_brackets(tokens: Sequence[Token]) -> set[int]:
    """Places of brackets without a partner."""
    opened: list[int] = []
    lonely = set()
    for place, token in enumerate(tokens):
        if token.kind == "sign" and token.text in OPENING:
            opened.append(place)
        elif token.kind == "sign" and token.text in CLOSING:
            if opened:
                opened.pop()
            else:
                lonely.add(place)
    return lonely | set(opened)


def rows(tokens: Sequence[Token]) -> str:
    """The elements of a formula, one after the other."""
    html, place = [], 0
    while place < len(tokens):
        element, place = scripted(tokens, place)
        html.append(element)
    return "".join(html)


def scripted(tokens: Sequence[Token], place: int) -> tuple[str, int]:
    """An element with its sub- and superscripts, and the place after it."""
    first = tokens[place].text
    before, base, place = element(tokens, place)
    below = above = ""
    while place < len(tokens):
        kind, text = tokens[place]
        if kind == "script" and text[0] == "_":
            below += script(text)
        elif kind == "script":
            above += script(text)
        elif text in RAISED:
            above += leaf(RAISED[text])
        elif text in LOWERED:
            below += leaf(LOWERED[text])
        else:
            break
        place += 1
    if not (below or above):
        return before + base, place
    below, above = (f"<mrow>{part}</mrow>" if part else "" for part in (below, above))
    form = "under" if first in LIMITS and below else "sub"
    tag = {"sub": ("msub", "msup", "msubsup"), "under": ("munder", "mover", "munderover")}[form]
    tag_name = tag[2] if below and above else tag[0] if below else tag[1]
    return f"{before}<{tag_name}>{base}{below}{above}</{tag_name}>", place


def element(tokens: Sequence[Token], place: int) -> tuple[str, str, int]:
    """What stands before the base of scripts, the base, and the place after it."""
    kind, text = tokens[place]
    if kind == "space":
        return "", space_between(tokens, place), place + 1
    if kind == "number" and place + 2 < len(tokens) and tokens[place + 1].text == "/":
        denominator, end = divisor(tokens, place + 2)
        if denominator:
            return "", f"<mfrac><mn>{text}</mn><mrow>{denominator}</mrow></mfrac>", end
    if text == "√" and place + 1 < len(tokens):
        root, end = bracketed(tokens, place + 1) if tokens[place + 1].text == "(" else scripted(tokens, place + 1)
        return "", f"<msqrt>{root}</msqrt>", end
    if kind == "word" and text not in FUNCTIONS and is_product(text):
        letters = re.findall(LETTER, text)
        return "".join(map(leaf, letters[:-1])), leaf(letters[-1]), place + 1
    return "", leaf(text), place + 1


def divisor(tokens: Sequence[Token], place: int) -> tuple[str, int]:
    """A denominator that is one variable or stands between bars; empty for anything longer."""
    if tokens[place].text == "|":
        end = next((later for later in range(place + 1, len(tokens)) if tokens[later].text == "|"), None)
        return (rows(tokens[place : end + 1]), end + 1) if end else ("", place)
    if tokens[place].kind in ("word", "name", "number"):
        return scripted(tokens, place)
    return "", place


def bracketed(tokens: Sequence[Token], place: int) -> tuple[str, int]:
    """Everything between the bracket at this place and the one that closes it, and the place after that."""
    depth, end = 0, place
    for end in range(place, len(tokens)):
        depth += (tokens[end].text == "(") - (tokens[end].text == ")")
        if depth == 0:
            break
    return rows(tokens[place + 1 : end]), end + 1


def script(text: str) -> str:
    """A sub- or superscript: letters side by side are indices, longer words are words."""
    inner = text[2:-1] if text[1] == "{" else text[1:]
    if re.fullmatch("[A-Za-z]+", inner):
        return "".join(map(leaf, inner)) if len(inner) <= 3 and inner not in FUNCTIONS else leaf(inner)
    return rows(scan(inner))


def space_between(tokens: Sequence[Token], place: int) -> str:
    """A thin space between factors and a full one around words; operators bring their own."""
    beside = [tokens[other] for other in (place - 1, place + 1) if 0 <= other < len(tokens)]
    if any(kind == "word" and text not in FUNCTIONS and not is_product(text) for kind, text in beside):
        return '<mspace width="0.35em"/>'
    signs = [text for kind, text in beside if kind == "sign" and text not in "()[]{}|‖₊⁺⁻²Σ"]
    return "" if signs else '<mspace width="0.17em"/>'


def leaf(text: str) -> str:
    """One element: a number, a name, a bracket or an operator."""
    shown = escape(text, quote=False)
    if re.fullmatch(r"[\d.]+|[½¼]", text):
        return f"<mn>{shown}</mn>"
    if text in LIMITS:
        large = ' largeop="true"' if text == "Σ" else ""
        return f'<mo{large} movablelimits="true">{"∑" if text == "Σ" else shown}</mo>'
    if len(text) > 1 and re.search(r"[_\d]", text):
        return f"<mtext>{shown}</mtext>"
    if re.fullmatch(rf"{LETTER}+(?:-[a-z]+)*|∞", text):
        return f"<mi>{shown.replace(chr(39), '′')}</mi>"
    if text in "()[]{}|‖⌊⌋":
        return f'<mo stretchy="false" lspace="0" rspace="0">{shown}</mo>'
    return f"<mo>{shown}</mo>"
