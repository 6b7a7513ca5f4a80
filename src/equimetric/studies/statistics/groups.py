"""Rows that cannot be told apart: letters, and the ranks that remain possible."""

import string
from collections.abc import Iterable, Sequence

__all__ = ["compact_letters", "possible_ranks", "tied_groups"]


def tied_groups(names: Sequence[str], different: Iterable[tuple[str, str]]) -> list[tuple[str, ...]]:
    """Groups such that two rows share a group exactly if they are not `different`, each in the order of the names.

    Insert and absorb (Piepho 2004): start with one group of all; every different pair splits the groups that hold
    both; a group inside another is dropped, and in the end those whose pairs the others hold together, too.
    """
    groups = [frozenset(names)]
    for one, other in different:
        split = [
            part
            for group in groups
            for part in ((group - {one}, group - {other}) if {one, other} <= group else (group,))
        ]
        unique = list(dict.fromkeys(split))
        groups = [group for group in unique if not any(group < larger for larger in unique)]
    order = {name: place for place, name in enumerate(names)}
    ranked = sorted(sorted(order[name] for name in group) for group in groups)
    return [tuple(names[place] for place in group) for group in _without_redundant(ranked)]


def compact_letters(names: Sequence[str], different: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Compact letter display: rows that share a letter are not `different`; the first group has the letter a."""
    shown = dict.fromkeys(names, "")
    for number, group in enumerate(tied_groups(names, different)):
        alphabet = string.ascii_lowercase + string.ascii_uppercase
        letter = alphabet[number % len(alphabet)] + "′" * (number // len(alphabet))
        for name in group:
            shown[name] += letter
    return shown


def possible_ranks(names: Sequence[str], better: Iterable[tuple[str, str]]) -> dict[str, tuple[int, int]]:
    """Best and worst rank that pairs (better row, worse row) leave possible for every row.

    A row has at least as many rows before it as are better, and at least as many behind it as are worse.
    """
    first, last = dict.fromkeys(names, 1), dict.fromkeys(names, len(names))
    for winner, loser in better:
        last[winner] -= 1
        first[loser] += 1
    return {name: (first[name], last[name]) for name in names}


def _without_redundant(groups: list[list[int]]) -> list[list[int]]:
    """Drop groups, the last first, while every row and every pair stays in another."""
    kept = list(groups)
    for group in reversed(groups):
        others = [other for other in kept if other is not group]
        if all(any({one, two} <= set(other) for other in others) for one in group for two in group):
            kept = others
    return kept
