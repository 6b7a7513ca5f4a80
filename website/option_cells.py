"""What the pages of methods say about an option: the values that it takes, and its meaning."""

import inspect
import re
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import torch

from equimetric.components import Component
from equimetric.constructors.kind import options_of
from equimetric.option_values import Range
from website.cells import cell
from website.formulas import typeset

__all__ = ["allowed_values", "meaning", "read_meanings"]

MEANINGS = Path(__file__).with_name("option_meanings.toml")

WORDS: dict[Any, str] = {
    int: "whole number",
    float: "number",
    torch.Tensor: "tensor",
    torch.Generator: "`torch.Generator`",
    Callable: "function",
}
"""Type of an option → its word."""


def allowed_values(part: Component, name: str) -> str:
    """What the annotation of an option allows, in words; None, where it is the default, needs none."""
    annotation = next(one.annotation for one in options_of(part.definition) if one.name == name)
    words = [word for one in members(annotation) for word in words_of(one)]
    if name == "reduction" and (part.separable or part.per_query):
        words.append("`'query'`")
    return ", ".join(words)


def members(annotation: Any) -> tuple[Any, ...]:
    """The types of a union, or the single type."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def words_of(annotation: Any) -> list[str]:
    """One type in words."""
    if annotation is NoneType:
        return []
    if annotation is bool:
        return ["`True`", "`False`"]
    if get_origin(annotation) is Literal:
        return [f"`{value!r}`" for value in get_args(annotation)]
    base, *limits = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    if get_origin(base) in (Sequence, tuple):
        return [f"{WORDS[get_args(base)[0]]}s"]
    return [" ".join([WORDS[get_origin(base) or base], *(str(limit) for limit in limits if isinstance(limit, Range))])]


def meaning(part: Component, name: str) -> str:
    """The phrase of `option_meanings.toml`, or else the sentence of the docstring that is about the option."""
    entries = read_meanings()
    for table in (entries.get(part.kind, {}).get(part.name, {}), entries["any"]):
        if name in table:
            return cell(table[name])
    return described(part, name)


@cache
def read_meanings() -> dict[str, dict[str, Any]]:
    """The entries of `option_meanings.toml`."""
    return tomllib.loads(MEANINGS.read_text(encoding="utf-8"))


def described(part: Component, name: str) -> str:
    """The first sentence of the docstring that is about an option; empty where only formulas are."""
    text = " ".join((inspect.getdoc(part.definition) or "").split())
    sentences = re.split(r"(?<=[.;:]) (?=[^\d(])", text)
    words = [one for one in sentences if re.match(r"[A-Za-z`']{2}|A ", one) and one.count(" ") > 2]
    found = [one for one in words if f"`{name}`" in one or re.search(rf"\b{name}=['\"]", one)]
    return typeset(found[0].rstrip(" .;:")).replace("|", "&#124;") if found else ""
