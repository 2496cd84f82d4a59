"""Texts of the pages, in the languages of `texts/`: one TOML file each, with the same keys."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Final

LANGUAGES: Final = ("en", "de")
"""Languages with a file, the first one for people whose browser asks for none of them."""


@cache
def texts_of(language: str) -> dict[str, str]:
    """Return the texts of a language by their keys, `section.name`."""
    content = (files("gossamer.dashboard") / "texts" / f"{language}.toml").read_text(encoding="utf-8")
    return {
        f"{section}.{name}": text for section, names in tomllib.loads(content).items() for name, text in names.items()
    }


def language_for(accepted: str) -> str:
    """Return the language for a header Accept-Language (RFC 9110, section 12.5.4)."""
    wanted: list[tuple[float, str]] = []
    for part in accepted.lower().split(",")[:20]:
        name, _, weight = part.partition(";q=")
        try:
            wanted.append((float(weight or 1), name.strip().partition("-")[0]))
        except ValueError:
            continue
    for _, name in sorted(wanted, key=lambda pair: -pair[0]):
        if name in LANGUAGES:
            return name
    return LANGUAGES[0]


class Texts:
    """Texts of one language."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._texts = texts_of(language)

    def __call__(self, key: str, **values: object) -> str:
        """Return a text with its values. Raises KeyError for a key that the language does not have."""
        text = self._texts[key]
        return text.format(**values) if values else text

    def get(self, key: str, default: str) -> str:
        """Return a text, or `default` where there is none of this key."""
        return self._texts.get(key, default)
