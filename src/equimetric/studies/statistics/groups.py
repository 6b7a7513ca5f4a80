"""Rows that cannot be told apart: letters, and the ranks that remain possible."""

import string
from collections import Counter
from collections.abc import Iterable, Sequence

__all__ = ["compact_letters", "possible_ranks", "tied_groups"]


def tied_groups(names: Sequence[str], different: Iterable[tuple[str, str]]) -> list[tuple[str, ...]]:
    """Groups such that two rows share a group exactly if they are not `different`, each in the order of the names.

    All largest groups can be exponentially many. So a group is grown from each pair that shares none yet, by the row
    that brings most such pairs, until none can be added; groups are dropped whose pairs others hold together.
    """
    places = {name: place for place, name in enumerate(names)}
    tied = [set(range(len(names))) for _ in names]
    for one, other in different:
        tied[places[one]].discard(places[other])
        tied[places[other]].discard(places[one])
    groups: list[list[int]] = []
    joined: list[set[int]] = [set() for _ in names]
    for first in range(len(names)):
        for second in sorted(tied[first]):
            if second < first or second in joined[first]:
                continue
            group, candidates = {first, second}, tied[first] & tied[second]
            while candidates := candidates - group:
                place = min(candidates, key=lambda one: (-len(group - joined[one]), one))
                group.add(place)
                candidates &= tied[place]
            groups.append(sorted(group))
            for place in group:
                joined[place] |= group
    return [tuple(names[place] for place in group) for group in _without_redundant(sorted(groups))]


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
    held = Counter((one, two) for group in groups for one in group for two in group)
    kept = []
    for group in reversed(groups):
        pairs = [(one, two) for one in group for two in group]
        if all(held[pair] > 1 for pair in pairs):
            held.subtract(pairs)
        else:
            kept.append(group)
    return kept[::-1]
