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
    index = {name: i for i, name in enumerate(names)}
    tied = [set(range(len(names))) for _ in names]
    for a, b in different:
        tied[index[a]].discard(index[b])
        tied[index[b]].discard(index[a])
    groups: list[list[int]] = []
    joined: list[set[int]] = [set() for _ in names]
    for first in range(len(names)):
        for second in sorted(tied[first]):
            if second < first or second in joined[first]:
                continue
            group, candidates = {first, second}, tied[first] & tied[second]
            while candidates := candidates - group:
                i = min(candidates, key=lambda row: (-len(group - joined[row]), row))
                group.add(i)
                candidates &= tied[i]
            groups.append(sorted(group))
            for i in group:
                joined[i] |= group
    return [tuple(names[i] for i in group) for group in _drop_redundant(sorted(groups))]


def compact_letters(names: Sequence[str], different: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Compact letter display: rows that share a letter are not `different`; the first group has the letter a."""
    letters = dict.fromkeys(names, "")
    for index, group in enumerate(tied_groups(names, different)):
        alphabet = string.ascii_lowercase + string.ascii_uppercase
        letter = alphabet[index % len(alphabet)] + "′" * (index // len(alphabet))
        for name in group:
            letters[name] += letter
    return letters


def possible_ranks(names: Sequence[str], better: Iterable[tuple[str, str]]) -> dict[str, tuple[int, int]]:
    """Best and worst rank that pairs (better row, worse row) leave possible for every row.

    A row has at least as many rows before it as are better, and at least as many behind it as are worse.
    """
    first, last = dict.fromkeys(names, 1), dict.fromkeys(names, len(names))
    for winner, loser in better:
        last[winner] -= 1
        first[loser] += 1
    return {name: (first[name], last[name]) for name in names}


def _drop_redundant(groups: list[list[int]]) -> list[list[int]]:
    """Drop groups, the last first, while every row and every pair stays in another."""
    counts = Counter((a, b) for group in groups for a in group for b in group)
    remaining = []
    for group in reversed(groups):
        pairs = [(a, b) for a in group for b in group]
        if all(counts[pair] > 1 for pair in pairs):
            counts.subtract(pairs)
        else:
            remaining.append(group)
    return remaining[::-1]
