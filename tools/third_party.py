"""Write native/THIRD-PARTY.txt: the licences of the crates in the compiled extension, which its wheels must carry.

    python -m tools.third_party

The texts are those in the sources that cargo has: the files of a crate, and comments with a copyright, as in parts that
it took over from others. Run it after a change of native/crates.lock. A crate without such a text is an error: exit
code 1.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tools import sbom

FILE = sbom.ROOT / "native" / "THIRD-PARTY.txt"
_TEXTS = re.compile(r"(?i)(licen[cs]e|copying|copyright|notice|unlicense)\b")
_SOURCES = frozenset({".rs", ".c", ".cc", ".cpp", ".h", ".hpp", ".s", ".asm"})
_NOT_LINKED = frozenset({"tests", "test", "benches", "bench", "examples"})
_COMMENT = re.compile(r"(?:^[ \t]*//[^\n]*\n)+|/\*.*?\*/", re.DOTALL | re.MULTILINE)
_RULE = "=" * 100


class MissingTextError(Exception):
    """{name} has no text of its licence."""


def third_party() -> str:
    """Return the text of the file. Needs cargo."""
    parts = [
        "Licences of the crates that are linked into the compiled extension of Gossamer, with what they took over\n"
        "from others. A text that several have stands once. Written by tools/third_party.py."
    ]
    seen: dict[str, str] = {}
    for crate in sbom.linked_crates():
        title = f"{crate['name']} {crate['version']}"
        lines = [f"{_RULE}\n{title}: {crate['license']}"]
        for name, text in notices(Path(crate["manifest_path"]).parent, crate["license"] or ""):
            first = seen.setdefault(" ".join(text.split()), title)
            lines.append(f"--- {name}\n\n{text}" if first == title else f"--- {name}: as that of {first}")
        if len(lines) == 1:
            raise MissingTextError(title)
        parts.append("\n\n".join(dict.fromkeys(lines)))
    return "\n\n".join(parts) + "\n"


def notices(folder: Path, licence: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each notice of a crate: its files, then the comments in its sources."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and _TEXTS.match(path.name))
    # Where a licence may be chosen, MIT is.
    if "AND" not in licence and any("MIT" in path.name for path in files):
        files = [path for path in files if "MIT" in path.name or path.name.startswith("NOTICE")]
    for path in files:
        yield path.name, path.read_text().strip("\n")
    found = set()
    for path in sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SOURCES):
        name = path.relative_to(folder)
        if _NOT_LINKED.isdisjoint(name.parts):
            for comment in _COMMENT.findall(path.read_text(errors="replace")):
                text = _plain(comment)
                if re.search(r"(?i)\bcopyright\b", text) and text not in found:
                    found.add(text)
                    yield str(name), text


def _plain(comment: str) -> str:
    """Return the lines of a comment without what makes them one."""
    lines = [re.sub(r"^\s*(///?!?|/\*[*!]?|\*/|\*)? ?|\s*(\*/)?$", "", line) for line in comment.splitlines()]
    return "\n".join(lines).strip("\n")


def main() -> int:
    """Run the program."""
    try:
        FILE.write_text(third_party())
    except MissingTextError as error:
        sys.stderr.write(f"{error.args[0]} has no text of its licence\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
