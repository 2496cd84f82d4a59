"""Groups of settings, and how values get into them.

A value comes from an option of a command, from the environment or from a TOML file, and is checked against the type of
its setting. Messages name the place where the value was written: `--scope`, `GOSSAMER_CRAWL__SCOPE` or
`gossamer.toml: crawl.scope`.

Every command loads this module before its first request, so it imports nothing that loads slowly, such as pydantic.
Fixed: how names are written in the environment, and the words for true and false, which stand in users' files.
"""

import os
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar, Union, get_args, get_origin

import msgspec

from gossamer.errors import BadInput
from gossamer.settings.options import SettingOption, texts

ENVIRONMENT_PREFIX = "GOSSAMER_"  # fixed
_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}
"""Words for true and false in text. None may be removed, because users' files hold them."""
_SHOWN_CHARACTERS = 200
"""Characters of a wrong value in a message. More only make messages longer."""

GroupT = TypeVar("GroupT", bound="SettingGroup")


class SettingField:
    """A setting: its default, its description, and what it accepts."""

    def __init__(
        self,
        default: Any,
        description: str,
        *,
        prepare: Callable[[Any], Any] | None = None,
        expects: str = "",
        splits: bool = True,
        option: SettingOption | None = None,
    ) -> None:
        self.default = default
        self.description = description
        self.kind: Any = None
        """Type of the values. `SettingGroup.__init_subclass__` sets it, from the annotation."""
        self.prepare = prepare
        """Converts a value before it is checked. None: the value is checked as it is."""
        self.expects = expects
        """Words for what to write instead of a wrong value. Empty: those of the type."""
        self.splits = splits
        """True: a list in the environment is split at commas. False: its elements may hold commas, so it is not."""
        self.option = option
        """Option that sets it. None: there is none."""

    @property
    def has_texts(self) -> bool:
        """True: the value is a list, or a table of texts."""
        return bool(_origins(self.kind) & {tuple}) or self.kind == dict[str, str]


def field_of(
    default: Any,
    description: str,
    *,
    prepare: Callable[[Any], Any] | None = None,
    expects: str = "",
    splits: bool = True,
    option: SettingOption | None = None,
) -> Any:
    """Return a SettingField. The arguments are its attributes.

    Declared as Any, so that `depth: int = field_of(...)` passes the type checker: an object of the group has the
    setting's value under this name.
    """
    return SettingField(default, description, prepare=prepare, expects=expects, splits=splits, option=option)


def integers(least: int, most: int, *, unit: str = "") -> Any:
    """Return the range of an integer setting, for `Annotated[int, integers(1, 10)]`. Both ends are allowed. `unit`:
    what messages say is counted."""
    return msgspec.Meta(ge=least, le=most, extra={"unit": unit} if unit else None)


def numbers(least: float, most: float, *, above: bool = False) -> Any:
    """Return the range of a number setting, both ends allowed. `above` True: `least` itself is not allowed."""
    return msgspec.Meta(gt=least, le=most) if above else msgspec.Meta(ge=least, le=most)


class SettingGroup:
    """Base class of a group of settings: a frozen object with an attribute for each.

    A subclass has a line `name: type = field_of(default, description)` for each setting, and may have groups as
    attributes. The constructor checks the names, not the values.
    """

    fields: ClassVar[dict[str, SettingField]] = {}
    """Settings of the group by name, without those of the groups in it."""
    groups: ClassVar[dict[str, type["SettingGroup"]]] = {}
    """Groups in this group by name."""

    def __init_subclass__(cls) -> None:
        # Each setting leaves the class body: its field goes into `fields`, and its default takes its place.
        fields, groups = dict(cls.fields), dict(cls.groups)
        for name, value in list(vars(cls).items()):
            if isinstance(value, SettingField):
                value.kind = cls.__annotations__[name]
                fields[name] = value
                setattr(cls, name, value.default)  # what an object has that was made without this setting
            elif isinstance(value, SettingGroup):
                groups[name] = type(value)
        cls.fields, cls.groups = fields, groups

    def __init__(self, **values: Any) -> None:
        for name in values:
            if name not in self.fields and name not in self.groups:
                raise TypeError(f"{type(self).__name__} has no setting {name}")
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"settings are frozen; use copy({name}=...)")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({given})"

    @property
    def given(self) -> frozenset[str]:
        """Names of the settings that were set. The others have their defaults."""
        return frozenset(self.__dict__)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Yield the name and the value of each setting and group."""
        for name in (*self.fields, *self.groups):
            yield name, getattr(self, name)

    def copy(self, **changes: Any) -> Self:
        """Return these settings with some changed. The values are not checked."""
        return type(self)(**{**self.__dict__, **changes})

    def as_json(self) -> dict[str, Any]:
        """Return the settings that were set, as values of JSON. Another process reads them with `from_json`."""
        return {
            name: value.as_json() if isinstance(value, SettingGroup) else msgspec.to_builtins(value, enc_hook=str)
            for name, value in self.__dict__.items()
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the settings that `as_json` wrote. Raises BadInput."""
        return build(cls, values_of_table(cls, values, "settings: "))


class Given(NamedTuple):
    """A value, and where it was written."""

    value: Any
    place: str
    """As messages name it: `--scope`."""


def dotted_fields(model: type[SettingGroup], prefix: str = "") -> Iterator[tuple[str, SettingField]]:
    """Yield the dotted name (`crawl.depth`) and the field of each setting, those of inner groups last."""
    for name, field in model.fields.items():
        yield prefix + name, field
    for name, group in model.groups.items():
        yield from dotted_fields(group, f"{prefix}{name}.")


def variable_of(name: str) -> str:
    """Return the environment variable of a setting: `GOSSAMER_CRAWL__DEPTH` for `crawl.depth`."""
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "__")


# --- where values come from -------------------------------------------------------------------------------------------


def values_of_file(model: type[SettingGroup], path: Path) -> dict[str, Given]:
    """Return the values in a TOML file by dotted name. Raises BadInput where it cannot be read or names no setting."""
    import tomllib  # late: most commands have no such file

    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:  # not TOML, or not UTF-8
        raise BadInput(f"{path} is not valid TOML: {error}.") from None
    return values_of_table(model, table, f"{path}: ")


def values_of_table(model: type[SettingGroup], table: Mapping[str, Any], place: str) -> dict[str, Given]:
    """Return the values in a table of settings with a table for each group. Raises BadInput for an unknown name.

    `place`: beginning of the places in messages.
    """
    return dict(_values_of_group(model, model, table, place, ""))


def _values_of_group(
    root: type[SettingGroup], model: type[SettingGroup], table: Mapping[str, Any], place: str, prefix: str
) -> Iterator[tuple[str, Given]]:
    """Yield the values of a group. `root`: all settings, whose names are suggested. `prefix`: the group's dotted name
    and a dot."""
    for name, value in table.items():
        dotted = f"{prefix}{name}"
        group = model.groups.get(name)
        if group is None and name not in model.fields:
            raise BadInput(f"{place}there is no setting {dotted}.{_suggestion(root, dotted)}")
        if group is None:
            yield dotted, Given(value, f"{place}{dotted}")
        elif isinstance(value, Mapping):
            yield from _values_of_group(root, group, value, place, f"{dotted}.")
        else:
            raise BadInput(f"{place}{dotted} is a group of settings. Write [{dotted}], and its settings below.")


def _suggestion(root: type[SettingGroup], name: str) -> str:
    """Return ` Did you mean crawl.depth?` for a name that is near to that of a setting, else an empty text.

    Tried in this order: the whole name if it is very near; its last part, for `depth` where `crawl.depth` is meant; the
    whole name if it is somewhat near.
    """
    from difflib import get_close_matches  # late: only mistakes need it

    known = [*root.groups, *(dotted for dotted, _ in dotted_fields(root))]
    by_last_part = {dotted.rpartition(".")[2]: dotted for dotted in known}
    last_part = name.rpartition(".")[2]
    near = [
        *get_close_matches(name, known, 1, _VERY_NEAR),
        *(by_last_part[part] for part in get_close_matches(last_part, by_last_part, 1, _VERY_NEAR)),
        *get_close_matches(name, known, 1),
    ]
    return f" Did you mean {near[0]}?" if near else ""


_VERY_NEAR = 0.75
"""Likeness of two names, from 0 to 1 (difflib), that makes a sure suggestion. 0.6 is difflib's own."""


def values_of_environment(model: type[SettingGroup], environment: Mapping[str, str]) -> dict[str, Given]:
    """Return the values in the environment by dotted name. Raises BadInput.

    A variable that begins with a group's name must be a setting of the group, and none may be that of a setting with
    one underscore for two; other unknown variables are ignored, because programs around Gossamer have their own.
    """
    by_variable = {variable_of(name): (name, field) for name, field in dotted_fields(model)}
    groups = tuple(f"{ENVIRONMENT_PREFIX}{name.upper()}__" for name in model.groups)
    by_single = {known.replace("__", "_"): known for known in by_variable}
    found: dict[str, Given] = {}
    for variable, text in environment.items():
        upper = variable.upper()
        if not upper.startswith(ENVIRONMENT_PREFIX):
            continue
        if upper in by_variable:
            name, field = by_variable[upper]
            found[name] = Given(_from_text(text, field, variable), variable)
        elif upper.startswith(groups):
            from difflib import get_close_matches  # late: only mistakes need it

            near = get_close_matches(upper, by_variable, 1)
            raise BadInput(f"{variable}: there is no such setting.{f' Did you mean {near[0]}?' if near else ''}")
        elif upper in by_single:
            raise BadInput(f"{variable}: there is no such setting. Did you mean {by_single[upper]}?")
    return found


def _from_text(text: str, field: SettingField, variable: str) -> Any:
    """Return the value of an environment variable, still to be checked: a list with commas or in JSON, a table in JSON,
    else the text."""
    kinds = _origins(field.kind)
    if kinds.isdisjoint({tuple, dict}):
        return text
    begin = text.lstrip()[:1]
    if (begin == "[" and tuple in kinds) or begin == "{":  # a table may also be the only element of a list
        import json  # late, as difflib: few values are written in it

        try:
            return json.loads(text)
        except ValueError as error:
            raise BadInput(f"{variable}: cannot read {text!r:.{_SHOWN_CHARACTERS}} as JSON: {error}.") from None
    if tuple not in kinds:
        return text
    return [part for given in text.split(",") if (part := given.strip())] if field.splits else [text]


def merge(lower: dict[str, Given], higher: Mapping[str, Given]) -> None:
    """Add the values of `higher`, which have precedence, to `lower`. Tables, such as request headers, are joined."""
    for name, given in higher.items():
        before = lower.get(name)
        if before is not None and isinstance(before.value, dict) and isinstance(given.value, dict):
            given = given._replace(value={**before.value, **given.value})
        lower[name] = given


# --- checks -----------------------------------------------------------------------------------------------------------


def build(model: type[GroupT], values: Mapping[str, Given]) -> GroupT:
    """Return the settings with these values by dotted name. Raises BadInput for the first that is not valid."""
    own: dict[str, Any] = {}
    inner: dict[str, dict[str, Given]] = {name: {} for name in model.groups}
    for dotted, given in values.items():
        name, dot, rest = dotted.partition(".")
        if dot:
            inner[name][rest] = given
        else:
            own[name] = _checked(given, model.fields[name])
    for name, group_values in inner.items():
        own[name] = build(model.groups[name], group_values)
    return model(**own)


def read_option(value: Any, field: SettingField, place: str) -> Any:
    """Return the value of an option, as a command or a program gives it, as one that a settings file could have. Raises
    BadInput. `place`: as messages name the option."""
    if field.option is not None and field.option.convert is not None:
        try:
            return field.option.convert(value)
        except BadInput as error:
            raise BadInput(f"{place}: {error}") from None
        except (TypeError, ValueError) as error:
            raise BadInput(f"{place}: cannot use {value!r:.{_SHOWN_CHARACTERS}}: {error}") from None
    if isinstance(value, Mapping):
        return dict(value)
    if tuple in _origins(field.kind):
        found = texts(value)
        if isinstance(found, tuple) and any(map(_is_list_of_words, alternatives(field.kind))):
            return tuple(word.strip() for one in found for word in (one.split(",") if isinstance(one, str) else [one]))
        return found
    return os.fspath(value) if isinstance(value, os.PathLike) and str in _origins(field.kind) else value


def _checked(given: Given, field: SettingField) -> Any:
    """Return the value in the setting's type. Raises BadInput."""
    value = given.value
    try:
        if field.prepare:
            value = field.prepare(value)
        if isinstance(value, str) and bool in alternatives(field.kind):
            value = _truth(value)
        if isinstance(value, Path) and field.kind is Path:
            return value  # msgspec does not know the type
        return msgspec.convert(value, field.kind, strict=False, dec_hook=_decode)
    except BadInput as error:
        raise BadInput(f"{given.place}: {error}") from None
    except (msgspec.ValidationError, TypeError, ValueError):
        shown = f"{given.value!r}"
        if isinstance(given.value, tuple | list):
            shown = ", ".join(map(repr, given.value))
        shown = shown[:_SHOWN_CHARACTERS]
        expected = field.expects or _expected(field.kind)
        raise BadInput(f"{given.place}: cannot use {shown}. Write {expected}.") from None


def _truth(text: str) -> bool | str:
    """Return True or False for a word that means it, else the text."""
    word = text.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else text


def _decode(kind: type, value: Any) -> Any:
    """Convert a text into a path, the only type of a setting that msgspec does not know."""
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise TypeError(kind)


def alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the types that a setting accepts, without None and without ranges: `(int, str)` for
    `Annotated[int, integers(1, 10)] | str | None`."""
    members = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return tuple(
        get_args(member)[0] if get_origin(member) is Annotated else member
        for member in members
        if member is not types.NoneType
    )


def _is_list_of_words(kind: Any) -> bool:
    """Return whether a type is that of a list of certain words, which an option may have with commas."""
    return get_origin(kind) is tuple and get_origin(get_args(kind)[0]) is Literal


def _origins(kind: Any) -> set[Any]:
    """Return the types that a setting accepts, without those of elements: `{tuple}` for `tuple[str, ...]`."""
    return {get_origin(one) or one for one in alternatives(kind)}


_TYPE_WORDS = {bool: "true or false", str: "a text", Path: "a path", tuple: "a list of texts", dict: "a table"}
"""Words for each type in messages. A type that is missing is "another value"."""

_UNLIMITED = 2**40
"""Upper limit from which a message does not name it: it has no meaning of its own, such as the largest exact
integer."""


def _expected(kind: Any) -> str:
    """Return what to write for a type: `a whole number from 0 to 100`."""
    members = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return " or ".join(_expected_one(member) for member in members if member is not types.NoneType)


def _expected_one(kind: Any) -> str:
    """Return what to write for a type that is no union."""
    if get_origin(kind) is Literal:
        *words, last = get_args(kind)
        return f"{', '.join(words)} or {last}"
    if get_origin(kind) is Annotated:
        base, limits = get_args(kind)[:2]
        number = "a whole number" if base is int else "a number"
        if limits.extra:
            number = f"{number} of {limits.extra['unit']}"
        if limits.gt is not None:
            return f"{number} above {limits.gt:,g}, at most {limits.le:,g}"
        if base is int and limits.le >= _UNLIMITED:
            return f"{number} from {limits.ge:,} up"
        return f"{number} from {limits.ge:,.15g} to {limits.le:,.15g}"
    plain = get_origin(kind) or kind
    if _is_list_of_words(kind):
        return f"a list of {_expected_one(get_args(kind)[0])}"
    return (
        "a whole number" if plain is int else "a number" if plain is float else _TYPE_WORDS.get(plain, "another value")
    )
