"""Files that people write: text, and objects in YAML, JSON or TOML. A fault is named with the file and the line.

An object may not have a key twice, of which readers would drop one, and no aliases, which make a small text enormous.
"""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.errors import BadInput

if TYPE_CHECKING:  # imported late: few commands read such a file
    from yaml import MarkedYAMLError


def read_text(path: Path, *, most_bytes: int, place: str = "", advice: str = "", option: str = "") -> str:
    """Return the text of a file. Raises BadInput for one that cannot be read or has more bytes.

    `place`: beginning of the message. `advice`: sentence at its end. `option`: names the file."""
    end = f" {advice}" if advice else ""
    try:
        if os.path.getsize(path) > most_bytes:
            raise BadInput(f"{place}{path} is larger than {most_bytes // 1024:,} KiB.{end}", option=option)
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInput(f"{place}cannot read {path}: {error.strerror or error}.{end}", option=option) from None
    except UnicodeDecodeError:
        raise BadInput(f"{place}{path} is not UTF-8 text.{end}", option=option) from None


def decode_document(path: Path, text: str, *, hint: "Callable[[str, MarkedYAMLError], str] | None" = None) -> Any:
    """Return the object in the text of a file, by the ending of its name; YAML for others than .json and .toml. Raises
    BadInput. `hint`: returns advice for a fault of YAML, which begins with a space, or nothing."""
    import json
    import tomllib

    import yaml

    try:
        match path.suffix.lower():
            case ".json":
                return json.loads(text, object_pairs_hook=_object)
            case ".toml":
                return tomllib.loads(text)
            case _:
                return yaml.load(text, Loader=_loader())  # noqa: S506  (a safe loader)
    except RecursionError:
        raise BadInput(f"{path}: is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}, line {error.lineno}: is not valid JSON: {error.msg}.") from None
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: is not valid TOML: {error}.") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        advice = "" if hint is None else hint(text, error)
        raise BadInput(f"{path}{line}: is not valid YAML: {error.problem or error.context}.{advice}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read: {error}.") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON. Raises ValueError for a key that stands twice."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key} stands twice")
        found[key] = value
    return found


def check_keys(node: Any) -> None:
    """Raise an error of PyYAML for a mapping in which a key stands twice. `node`: before its keys are read."""
    import yaml

    seen = set()
    for key, _ in node.value:
        if isinstance(key.value, str):
            if key.value in seen:
                fault = f"the key {key.value} stands twice"
                raise yaml.constructor.ConstructorError(None, None, fault, key.start_mark)
            seen.add(key.value)


@cache
def _loader() -> Any:
    """Return a loader of YAML that refuses a key that stands twice and aliases, and that reads dates as text."""
    import yaml

    class Loader(yaml.SafeLoader):  # the methods and attributes are those of PyYAML
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            check_keys(node)
            return super().construct_mapping(node, deep)

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                event: Any = self.peek_event()  # type: ignore[no-untyped-call]
                fault = f"*{event.anchor} is an alias; put a text that begins with * into quotes"
                raise yaml.composer.ComposerError(None, None, fault, event.start_mark)
            return super().compose_node(parent, index)

    # Resolvers find the type of a value without quotes by its first character. Left out: that of dates.
    Loader.yaml_implicit_resolvers = {
        first: [(tag, expression) for tag, expression in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader


def line_of(text: str, path: tuple[str | int, ...]) -> int:
    """Return the line of the deepest part of a YAML or JSON text that a path leads to, counted from 1. 0: it is not
    known. JSON is read as YAML here, which it nearly always is."""
    import yaml

    try:
        node = yaml.compose(text, Loader=_loader())
    except yaml.YAMLError:
        return 0
    line = 0
    for part in path:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == part), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line or (node.start_mark.line + 1 if node is not None else 0)
