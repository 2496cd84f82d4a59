"""Texts of the pages, in the languages of `texts/`: one TOML file each, with the same keys."""

import re
import tomllib
from functools import cache
from importlib.resources import files
from string import Formatter
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


_SENTENCES: Final = ("finding.", "advice.", "waits.", "failure.", "error.")
"""Sections with the sentences that programs make in English: in the first language, texts that are recognised."""
_SCOPE_FAULT: Final = re.compile(r"this needs a token with the scope (\w+); (.+) has (\w+)")
"""Sentence of a platform's API, whose scopes have technical names."""
_LONGEST_SENTENCE: Final = 1000
"""Characters of a sentence that is recognised. Longer ones take longer to compare."""


@cache
def _sentences() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the sentences that programs make, by their keys: those with most words of their own first."""
    known = {key: text for key, text in texts_of(LANGUAGES[0]).items() if key.startswith(_SENTENCES)}
    parts = {key: list(Formatter().parse(text)) for key, text in known.items()}
    order = sorted(known, key=lambda key: -sum(len(words) for words, *_ in parts[key]))
    return tuple(
        (
            key,
            re.compile(
                "".join(re.escape(words) + (f"(?P<{name}>.*?)" if name else "") for words, name, *_ in parts[key])
            ),
        )
        for key in order
    )


class Texts:
    """Texts of one language."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._texts = texts_of(language)

    def __call__(self, key: str, **values: object) -> str:
        """Return a text with its values. Raises KeyError for a key that the language does not have."""
        text = self._texts[key]
        return text.format(**values) if values else text

    def told(self, sentence: str) -> str:
        """Return a sentence that a program has made, in this language, and so its parts. One that is not known stays as
        it is. A refusal for want of a scope has the words of the pages, in every language."""
        if found := _SCOPE_FAULT.fullmatch(sentence):
            return self.scope_fault(*found.groups())
        if self.language == LANGUAGES[0] or len(sentence) > _LONGEST_SENTENCE:
            return sentence
        for key, pattern in _sentences():
            if found := pattern.fullmatch(sentence):
                return self(key, **{name: self.told(value) for name, value in found.groupdict().items()})
        without = sentence.removesuffix(".")
        told = self.told(without) if without != sentence else without
        return f"{told}." if told != without else sentence

    def scope_fault(self, needed: str, name: str, has: str) -> str:
        """Return why a visitor of this name, whose scope is `has`, may not do what needs another scope."""
        words = {scope: self.get(f"scope.{scope}", scope) for scope in (needed, has)}
        return self("problem.scope", needed=words[needed], name=name, has=words[has])

    def fault(self, sentence: str, kind: str = "") -> str:
        """Return an error that an API reports, in this language. If it is not known, it follows a sentence about errors
        of its kind. `kind`: name of the problem, such as `not-found`."""
        told = self.told(sentence)
        if self.language == LANGUAGES[0] or told != sentence:
            return told
        about = self.get(f"problem_kind.{kind.replace('-', '_')}", self._texts["problem_kind.any"])
        return f"{about}: {sentence}"

    def decimal(self, value: float) -> str:
        """Return a number with one decimal place, as people write it in this language."""
        return f"{value:,.1f}".replace(",", "\u2009").replace(".", self._texts["number.point"])

    def get(self, key: str, default: str) -> str:
        """Return a text, or `default` where there is none of this key."""
        return self._texts.get(key, default)
