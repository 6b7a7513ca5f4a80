"""The ranges over which a tuner may search a hyperparameter; part of every method's registry record."""

from dataclasses import dataclass

__all__ = ["Choice", "Integer", "LogUniform", "SearchSpace", "Uniform"]


@dataclass(frozen=True)
class Uniform:
    """A real number between two bounds, all equally likely."""

    low: float
    high: float


@dataclass(frozen=True)
class LogUniform:
    """A positive real number between two bounds, all orders of magnitude equally likely."""

    low: float
    high: float


@dataclass(frozen=True)
class Integer:
    """A whole number between two bounds, both included."""

    low: int
    high: int


@dataclass(frozen=True)
class Choice:
    """A choice among a few values."""

    values: tuple[float | str | bool | None, ...]


SearchSpace = Uniform | LogUniform | Integer | Choice
