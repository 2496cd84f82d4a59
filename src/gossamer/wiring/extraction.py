"""Reads the extraction rules of a crawl: from a file in YAML, JSON or TOML, or from the short forms of `--field`.

A fault is reported with the file and the line, before anything is fetched. Fixed: the formats, and which option stands
for which part of a rule.
"""

import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.errors import BadExtraction, BadInput
from gossamer.model.extraction import Extraction
from gossamer.option_names import label, named
from gossamer.settings.crawl import CrawlSettings

if TYPE_CHECKING:  # imported late: most crawls have no rules
    from yaml import MarkedYAMLError

_MAX_FILE_BYTES = 1024 * 1024
"""Largest file of rules. Rules themselves have a smaller limit, but a file may have comments."""
_FIELD_EXAMPLE = "Write NAME=SELECTOR, for example title=h1."


def load_extraction(crawl: CrawlSettings) -> Extraction | None:
    """Return the checked rules of these settings. None: the crawl has none. Raises BadInput.

    They come from `--extract` (a file or, from Python, an object), or they are one rule that `--field` and `--each`
    describe; not both."""
    if not crawl.field:
        if crawl.each:
            raise BadInput(
                f"there is no {named('field')} that it could be for. Write {named('each', 'SELECTOR')} "
                f"{named('field', 'NAME=SELECTOR')}.",
                option="each",
            )
        return _load(crawl.extract) if crawl.extract else None
    if crawl.extract:
        raise BadInput(
            f"{label('field')} and {label('extract')} cannot be combined. Write the fields into the file, or omit "
            "one of them."
        )
    from gossamer.extract.fields import check_rules

    fields: dict[str, str] = {}
    for text in crawl.field:
        name, equals, selector = text.partition("=")
        name = name.strip()
        if not equals or not name or not selector.strip() or not re.fullmatch(r"[^\s@:.#\[\]\"']+", name):
            raise BadInput(f"cannot read {text!r}. {_FIELD_EXAMPLE}", option="field")
        if name in fields:
            raise BadInput(f"{name} is given twice. Write one {named('field')} for each name.", option="field")
        fields[name] = selector
    try:
        return check_rules({**({"each": crawl.each} if crawl.each else {}), "fields": fields})
    except BadExtraction as fault:
        if fault.path[:1] == ("each",):
            raise BadInput(f"{fault.reason}. Write a CSS selector, for example .product.", option="each") from None
        name = f" {fault.path[1]}" if len(fault.path) > 1 else ""
        raise BadInput(_sentence(f"{label('field')}{name}: {fault.reason}")) from None


def _sentence(text: str) -> str:
    """Return the text with a full stop, unless it ends a sentence already."""
    return text if text.endswith(("?", ".")) else f"{text}."


def _load(source: str | dict[str, Any]) -> Extraction:
    """Return the rules in a file, or (from Python) in an object. Raises BadInput."""
    from gossamer.extract.fields import check_rules

    if isinstance(source, dict):
        try:
            return check_rules(source)
        except BadExtraction as fault:
            raise BadInput(_sentence(fault.detail), option="extract") from None
    path = Path(source)
    text = _read(path)
    try:
        return check_rules(_decoded(path, text))
    except BadExtraction as fault:
        line = _line_of(text, fault.path) if path.suffix.lower() != ".toml" else 0
        place = f"{source}, line {line}" if line else source
        raise BadInput(_sentence(f"{place}: {fault.detail}")) from None


def _read(path: Path) -> str:
    """Return the text of a file. Raises BadInput for a file that cannot be read, or is too large."""
    try:
        if os.path.getsize(path) > _MAX_FILE_BYTES:
            raise BadInput(
                f"{path} is larger than {_MAX_FILE_BYTES // 1024:,} KiB; this is no file of rules.", option="extract"
            )
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInput(
            f"cannot read {path}: {error.strerror or error}. Name a file of rules, or write "
            f"{named('field', 'NAME=SELECTOR')}.",
            option="extract",
        ) from None
    except UnicodeDecodeError:
        raise BadInput(
            f"{path} is not UTF-8 text. Name a file of rules in YAML, JSON or TOML.", option="extract"
        ) from None


def _decoded(path: Path, text: str) -> Any:
    """Return the object in a file, by the ending of its name. Raises BadInput with the line of a fault."""
    import json
    import tomllib

    import yaml

    try:
        match path.suffix.lower():
            case ".json":
                value = json.loads(text, object_pairs_hook=_object)
            case ".toml":
                value = tomllib.loads(text)
            case _:
                value = yaml.load(text, Loader=_loader())  # noqa: S506  (a safe loader)
    except RecursionError:
        raise BadInput(f"{path}: is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}, line {error.lineno}: is not valid JSON: {error.msg}.") from None
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: is not valid TOML: {error}.") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise BadInput(
            f"{path}{line}: is not valid YAML: {error.problem or error.context}.{_yaml_hint(text, error)}"
        ) from None
    except (yaml.YAMLError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read: {error}.") from None
    if value is None:
        raise BadInput(f"{path}: is empty. Write fields: and below it NAME: SELECTOR for each field.")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON. Raises ValueError for a key that stands twice."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key} stands twice")
        found[key] = value
    return found


def _yaml_hint(text: str, error: "MarkedYAMLError") -> str:
    """Return what to write where YAML gives a backslash, or a selector's first character, a meaning of its own."""
    if "escape" in (error.problem or ""):
        return " Put an expression with a backslash into single quotes."
    mark = error.problem_mark or error.context_mark
    lines = text.splitlines()
    if mark is None or mark.line >= len(lines):
        return ""
    odd = re.search(r":\s+([@*&!%`\[{#>|])", lines[mark.line])
    return f" Put a selector that begins with {odd[1]} into quotes." if odd else ""


@cache
def _loader() -> Any:
    """Return a loader of YAML that refuses a key that stands twice and aliases, which multiply, and that reads dates as
    text."""
    import yaml

    class Loader(yaml.SafeLoader):  # the methods and attributes are those of PyYAML
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in node.value:
                if key.value in seen:
                    fault = f"the key {key.value} stands twice"
                    raise yaml.constructor.ConstructorError(None, None, fault, key.start_mark)
                if isinstance(key.value, str):
                    seen.add(key.value)
            return super().construct_mapping(node, deep)

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                event: Any = self.peek_event()  # type: ignore[no-untyped-call]
                fault = f"*{event.anchor} is an alias; put a selector that begins with * into quotes"
                raise yaml.composer.ComposerError(None, None, fault, event.start_mark)
            return super().compose_node(parent, index)

    # Resolvers find the type of a value without quotes by its first character. Left out: that of dates.
    Loader.yaml_implicit_resolvers = {
        first: [(tag, expression) for tag, expression in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader


def _line_of(text: str, path: tuple[str | int, ...]) -> int:
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
