"""TOML files as typed models: loading, overrides, and errors in one sentence; the schemas live with their rooms."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from equimetric.checksums import read_document
from equimetric.dotted import set_dotted
from equimetric.errors import DamagedFileError, EquimetricError, did_you_mean, quote
from equimetric.escaping import is_unicode

__all__ = [
    "Options",
    "Strict",
    "load_config",
    "load_stored_config",
    "parse_overrides",
    "read_toml",
    "to_toml",
    "without_none",
]

MAX_INTEGER = 2**63 - 1
MAX_PROBLEMS = 3
"""Number of problems that one error lists."""


class Strict(BaseModel):
    """A table of a configuration: no unknown keys, no changes after loading, no text for numbers, none infinite."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @classmethod
    def explain_unknown(cls, path: str, key: str) -> str:
        """The sentence for a key that this table does not have; `path` is the key with its tables."""
        return f"unknown key {path!r}; {did_you_mean(key, cls.model_fields)}"


Model = TypeVar("Model", bound=Strict)


def load_config(
    source: Model | Mapping[str, Any] | str | Path,
    model: type[Model],
    overrides: Mapping[str, Any] | None = None,
    *,
    complete: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Model:
    """A configuration from a TOML file, a mapping or a model, with dotted keys overridden.

    `complete` fills in what a file or mapping leaves out, before it is checked.
    """
    prefix = "" if isinstance(source, (Mapping, Strict)) else f"{source}: "
    if isinstance(source, model):
        values = source.model_dump()
    elif isinstance(source, Mapping):
        values = to_plain(source)
    else:
        values = to_plain(read_toml(Path(str(source))), prefix)
    for key, value in (overrides or {}).items():
        set_dotted(values, key, to_plain(value, f"{key}: "))
    if complete is not None and not isinstance(source, model):
        values = complete(values)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = [explain(model, problem) for problem in error.errors()]
        more = [f"and {len(problems) - MAX_PROBLEMS} more"] if len(problems) > MAX_PROBLEMS else []
        raise EquimetricError(prefix + "; ".join(problems[:MAX_PROBLEMS] + more)) from None


def load_stored_config(file: Path, model: type[Model], advice: str) -> Model:
    """A configuration that was stored with its checksum; one that is not what was written raises one sentence."""
    try:
        values = tomllib.loads(read_document(file, advice))
    except tomllib.TOMLDecodeError as error:
        raise DamagedFileError(f"{file} is damaged ({error})", advice) from None
    if not values:
        raise DamagedFileError(f"{file} is damaged (it is empty)", advice)
    return load_config(file, model)


def to_plain(value: Any, prefix: str = "") -> Any:
    """Tables, lists, text and numbers as Python's own; `prefix` begins the error for anything else."""
    if isinstance(value, PathLike):
        value = fspath(value)
    elif hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {to_plain(str(key), prefix): to_plain(item, f"{prefix}{key}: ") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item, prefix) for item in value]
    if isinstance(value, str):
        if "\0" in value or not is_unicode(value):
            raise EquimetricError(f"{prefix}{quote(value)} is no text in UTF-8, or has a NUL; rename or replace it")
    elif isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise EquimetricError(f"{prefix}{quote(value)} is too large; whole numbers have at most 64 bits")
    elif value is not None and not isinstance(value, float):
        raise EquimetricError(
            f"{prefix}a configuration holds text, numbers, lists and tables, not {type(value).__name__}"
        )
    return value


def require_finite_options(options: dict[str, Any]) -> dict[str, Any]:
    """A table of options without NaN and infinite numbers."""
    for name, value in options.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number, got {value}")
        if isinstance(value, dict):
            require_finite_options(value)
    return options


Options = Annotated[dict[str, Any], AfterValidator(require_finite_options)]
"""A table of options, which their owner checks."""


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise EquimetricError(f"there is no configuration file {quote(str(path))}; check the path") from None
    except IsADirectoryError:
        raise EquimetricError(f"{quote(str(path))} is a folder; give the TOML file of a configuration") from None
    except OSError as error:
        raise EquimetricError(
            f"the configuration file {quote(str(path))} cannot be read: {error.strerror or error}; check the path"
        ) from None
    except UnicodeDecodeError as error:
        raise EquimetricError(
            f"the configuration file {str(path)!r} cannot be read: {error}; save it as UTF-8"
        ) from None
    except (ValueError, RecursionError) as error:  # huge numbers and deep brackets are no TOMLDecodeError
        raise EquimetricError(f"{quote(str(path))} is not valid TOML: {explain_toml(error)}") from None


def parse_overrides(arguments: Sequence[str]) -> dict[str, Any]:
    """['--optimizer.lr', '1e-5', '--seed=3'] → {'optimizer.lr': 1e-5, 'seed': 3}; values are read as TOML."""
    overrides: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        key, equals, text = argument.partition("=")
        if not key.startswith("--") or len(key) < 3:
            raise EquimetricError(f"cannot read {argument!r}; overrides look like --optimizer.lr 1e-4")
        if not equals:
            if not rest:
                raise EquimetricError(f"{key} needs a value, e.g. {key} 1e-4")
            text = rest.pop(0)
        overrides[key[2:]] = parse_value(text)
    return overrides


def parse_value(text: str) -> Any:
    """A TOML value, or the text itself where it is none."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except (ValueError, RecursionError) as error:
        raise EquimetricError(f"{quote(text)} is not a value: {explain_toml(error)}") from None


def explain_toml(error: Exception) -> str:
    """Explain why a text is not TOML."""
    if isinstance(error, RecursionError):
        return "its brackets are nested too deeply"
    return "a number has thousands of digits" if "digits" in str(error) else str(error)


def explain(model: type[Strict], error: Any) -> str:
    """Explain one validation error in a sentence, with the nearest valid key for an unknown one."""
    location = [str(part) for part in error["loc"]]
    key = ".".join(location)
    if error["type"] == "extra_forbidden":
        table = find_table(model, location[:-1])
        return table.explain_unknown(key, location[-1]) if table else f"unknown key {key!r}; leave it out"
    if error["type"] == "missing":
        return f"the key {key!r} is missing"
    if error["type"] in ("model_type", "dict_type"):
        return (
            f"{key} is a table, such as [{key}] in the file or --{key}.KEY on the command line, not "
            f"{quote(error['input'])}"
        )
    if error["type"] == "too_short":
        count, minimum = error["ctx"]["actual_length"], error["ctx"]["min_length"]
        return f"{key} has {count} {'entry' if count == 1 else 'entries'}; give at least {minimum}"
    message = str(error["msg"]).removeprefix("Value error, ")
    # For a whole table the message alone says what is wrong.
    received = "" if isinstance(error.get("input", {}), dict) else f", got {quote(error['input'])}"
    return (f"{key}: " if key else "") + message[0].lower() + message[1:] + received


def find_table(model: type[Strict], location: Sequence[str]) -> type[Strict] | None:
    """The schema of the table at a path of keys; None where there is none."""
    current: Any = model
    for part in location:
        if isinstance(current, type) and issubclass(current, Strict):
            if part not in current.model_fields:
                return None
            current = current.model_fields[part].annotation
        elif get_origin(current) is dict:
            current = get_args(current)[1]
        if not isinstance(current, type) and get_origin(current) is not dict:
            tables = [choice for choice in get_args(current) if isinstance(choice, type) and issubclass(choice, Strict)]
            current = tables[0] if tables else None
    return current if isinstance(current, type) and issubclass(current, Strict) else None


def to_toml(config: Strict) -> str:
    """The complete configuration as TOML; keys without a value are left out."""
    import tomli_w

    return tomli_w.dumps(without_none(config.model_dump()))


def without_none(value: Any) -> Any:
    """TOML has no null: drop such keys."""
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return value
