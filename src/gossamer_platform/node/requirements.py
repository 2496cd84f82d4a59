"""Requirements of a project: which packages its isolated environment is to have. Reads text only, runs nothing.

They come from the metadata of the egg or wheel, from a `requirements.txt` in it, and from what was given at the
deployment, all together.

Fixed: that no line leads to a file of the node (an editable install, a path, another requirements file), because
environments are shared between projects.
"""

import platform
import re
import sys
from email.parser import HeaderParser
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import sys_tags
from packaging.utils import canonicalize_name

from gossamer.errors import GossamerError
from gossamer_platform.packages import PackageFile

_MAX_LINES: Final = 2000
"""Largest number of requirements."""
_ADDRESS: Final = re.compile(r"(git\+)?https?://\S+")
"""Form of an address of a package. Nothing may stand before or after it: pip and uv would read that as an option."""
_OPTIONS: Final = ("--index-url", "--extra-index-url", "--find-links", "-i", "-f")
"""Options of a requirements file that may name an address."""
_SWITCHES: Final = ("--pre", "--prefer-binary", "--require-hashes", "--no-index")
_HASH: Final = re.compile(r"\s--hash[ =]\S+")


class BadRequirements(GossamerError):
    """The requirements cannot be read, or this node cannot meet them."""

    only_detail = True


def requirements_of(package: PackageFile, given: str) -> list[str]:
    """Return the lines of a requirements file for a package, sorted, with `given` ones. Raises BadRequirements."""
    _check_python(package)
    lines = {_text(each) for each in _required(package) if _holds(each)}
    for text in (package.requirements_text(), given):
        lines |= set(_lines(text))
    if len(lines) > _MAX_LINES:
        raise BadRequirements(f"there are {len(lines)} requirements; {_MAX_LINES} are allowed")
    return sorted(lines)


def names_scrapy(lines: list[str]) -> bool:
    """Return whether one of the requirements is Scrapy."""
    names = (re.match(r"[A-Za-z0-9._-]+", line) for line in lines)
    return any(name is not None and canonicalize_name(name[0]) == "scrapy" for name in names)


def scrapy_requirement() -> str:
    """Return the requirement for Scrapy of projects that name none: the version that the node itself has."""
    try:
        return f"scrapy=={version('scrapy')}"
    except PackageNotFoundError:
        return "scrapy"


def _check_python(package: PackageFile) -> None:
    wanted = HeaderParser().parsestr(package.metadata()).get("Requires-Python", "")
    here = platform.python_version()
    try:
        if wanted and not SpecifierSet(wanted).contains(here, prereleases=True):
            raise BadRequirements(f"the project needs Python {wanted}; this node has {here}")
    except InvalidSpecifier:
        raise BadRequirements(f"Requires-Python of the project is {wanted!r}, which is no specifier") from None
    tags = {tag for group in package.tags() for tag in _single_tags(group)}
    if tags and not tags & {str(tag) for tag in sys_tags()}:
        raise BadRequirements(
            f"the wheel is for {', '.join(sorted(tags)[:5])}; this node has Python {here} on {_here()}"
        )


def _single_tags(group: str) -> list[str]:
    """Return the tags of a group such as `py2.py3-none-any`."""
    parts = [part.split(".") for part in group.split("-")]
    return (
        [f"{one}-{two}-{three}" for one in parts[0] for two in parts[1] for three in parts[2]]
        if len(parts) == 3
        else []
    )


def _here() -> str:
    return f"{sys.platform} {platform.machine()}"


def _required(package: PackageFile) -> list[Requirement]:
    """Return the requirements of the metadata, with their conditions."""
    texts = HeaderParser().parsestr(package.metadata()).get_all("Requires-Dist") or []
    condition = ""
    for line in package.egg_requirements().splitlines():
        line = line.strip()
        if line.startswith("["):
            extra, _, condition = line.strip("[]").partition(":")
            if extra:  # packages of an extra, which nothing asks for
                condition = "extra == 'none'"
        elif line and not line.startswith("#"):
            texts.append(f"{line} ; {condition}" if condition else line)
    return [_requirement(text) for text in texts]


def _requirement(text: str) -> Requirement:
    """Return one requirement. Raises BadRequirements for one that leads to a file."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        raise BadRequirements(f"{text!r} is no requirement: {reason}. Write for example requests>=2.32") from None
    if requirement.url and not _ADDRESS.fullmatch(requirement.url):
        raise BadRequirements(f"{text!r} leads to a file. Name packages, or addresses with https://")
    return requirement


def _text(requirement: Requirement) -> str:
    requirement.marker = None  # it holds, or the requirement would not be here
    return str(requirement)


def _lines(text: str) -> list[str]:
    """Return the lines of a requirements file that count. Raises BadRequirements for one that is not allowed."""
    found = []
    for line in text.replace("\\\n", " ").replace("\\\r\n", " ").splitlines():
        line = " ".join(re.sub(r"(^|\s)#.*$", "", line).split())
        if line and (kept := _line(line)):
            found.append(kept)
    return found


def _line(line: str) -> str:
    """Return one line as it is used. Empty: its condition does not hold here."""
    option, value = [*re.split("[ =]+", line, maxsplit=1), ""][:2]
    if line in _SWITCHES or (option in _OPTIONS and re.fullmatch(r"https?://\S+", value)):
        return line
    if line.startswith("-"):
        raise BadRequirements(f"requirements.txt: {line!r} is not allowed. Name packages, or addresses with https://")
    if _ADDRESS.fullmatch(line):
        return line
    return line if _holds(_requirement(_HASH.sub("", line))) else ""


def _holds(requirement: Requirement) -> bool:
    """Return whether the requirement's condition holds on this node."""
    try:
        return requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    except ValueError as error:  # it compares what cannot be compared
        raise BadRequirements(f"the condition of the requirement {requirement} cannot be evaluated: {error}") from None
