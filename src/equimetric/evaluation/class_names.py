"""Names of classes whose labels are numbers."""

from collections.abc import Mapping, Sequence

from equimetric.errors import EquimetricError

__all__ = ["name_classes"]


def name_classes(
    class_labels: Sequence[int | str], class_names: Sequence[str] | Mapping[int, str] | None
) -> tuple[int | str, ...]:
    """The labels, or the names that go with these numbers; a name of several classes is followed by the number."""
    if class_names is None or any(isinstance(label, str) for label in class_labels):
        return tuple(class_labels)
    try:
        names = [class_names[int(label)] for label in class_labels]
    except (IndexError, KeyError):
        raise EquimetricError(
            f"there are {len(class_names)} class_names, and no name for some of the labels {class_labels[0]} … "
            f"{class_labels[-1]}; give one for each"
        ) from None
    repeated = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    return tuple(
        f"{name} ({label})" if name in repeated else name for name, label in zip(names, class_labels, strict=True)
    )
