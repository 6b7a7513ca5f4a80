"""`IdentificationProtocol`: enrolment, strangers, and the rule that names a probe."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from equimetric.errors import EquimetricError, unknown_name

__all__ = ["IdentificationProtocol", "NamingRule", "describe_threshold", "read_protocol"]

NamingRule = Literal["item", "mean", "nearest"]


@dataclass(frozen=True)
class IdentificationProtocol:
    """How probes are identified.

    by         `item`: the identity of the nearest gallery item; `mean`: of the nearest class mean, at unit length for
               cosine; `nearest`: the majority among the accepted of the k nearest items, ties by the nearest of them
    k          items of the rule `nearest`
    enrolled   images of each identity in the gallery, drawn at random; an identity with fewer enrols all but one; None
               enrols all, and a probe is left out of the gallery it is searched in
    strangers  share of the classes that is left out of the gallery; None: the probes whose class the gallery lacks, or
               half of the classes where it lacks none
    repeats    random choices of strangers and enrolled images; rates are those of all of them together
    seed       of these choices
    """

    by: NamingRule = "item"
    k: int = 5
    enrolled: int | None = None
    strangers: float | None = None
    repeats: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        if self.by not in get_args(NamingRule):
            raise unknown_name("rule of identification", str(self.by), get_args(NamingRule))
        for name, value in (("k", self.k), ("enrolled", self.enrolled), ("repeats", self.repeats)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise EquimetricError(f"{name} is {value!r}; give a whole number of at least 1")
        share = self.strangers
        if share is not None and not (isinstance(share, int | float) and 0 <= share < 1):
            raise EquimetricError(
                f"strangers is {share!r}; give the share of the classes to leave out of the gallery, 0 to below 1"
            )

    @property
    def depth(self) -> int:
        """Number of nearest gallery entries the rule reads."""
        return self.k if self.by == "nearest" else 1

    @property
    def description(self) -> str:
        """The rule and the enrolment in words."""
        rule = {"item": "nearest item", "mean": "nearest class mean", "nearest": f"majority of the {self.k} nearest"}
        images = "all images" if self.enrolled is None else f"{self.enrolled} image{'s'[: self.enrolled > 1]}"
        return f"{rule[self.by]}, {images} per identity"

    def to_dict(self) -> dict[str, Any]:
        """The fields in plain types."""
        return asdict(self)


def read_protocol(option: IdentificationProtocol | Mapping[str, Any] | None) -> IdentificationProtocol:
    """The protocol of an option: one itself, its fields by name, or None for the default."""
    if isinstance(option, IdentificationProtocol):
        return option
    if option is not None and not isinstance(option, Mapping):
        raise EquimetricError(f"identification is {option!r}; give its options by name, such as {{'by': 'mean'}}")
    fields = {} if option is None else dict(option)
    for name in fields:
        if name not in IdentificationProtocol.__dataclass_fields__:
            raise unknown_name("option of identification", str(name), IdentificationProtocol.__dataclass_fields__)
    return IdentificationProtocol(**fields)


def describe_threshold(threshold: float, geometry: str, digits: int = 6) -> str:
    """What is accepted: 'distances below 0.9', or with a cohort, whose scores are negated, 'scores above 2'."""
    if "cohort" in geometry:
        return f"scores above {-threshold:.{digits}g}"
    return f"distances below {threshold:.{digits}g}"
