"""Reads a person's rules for refusals by sites: a file in YAML, JSON or TOML with the same rules as Gossamer's own.

Fixed: the format, which has the fields of `RefusalRule`.
"""

from pathlib import Path
from typing import get_args

import msgspec

from gossamer.errors import BadInput
from gossamer.model.record import RefusalKind
from gossamer.policy.refusal_rules import MOST_BYTES, RULES, RefusalRule
from gossamer.policy.refusals import DEFAULT_FINDER, RefusalFinder
from gossamer.settings import Settings

_MAX_FILE_BYTES = 256 * 1024
_MAX_RULES = 200
"""Rules of a file. Each costs time for each page that may be refused."""
_SIGNS = (
    "header", "titles", "source", "any_source", "headings", "ends", "says", "is_shell", "redirects_to_login",
    "redirects_to_consent", "leads_back",
)  # fmt: skip
"""Fields of which a rule needs one: statuses and sizes alone would refuse pages."""

_SHOWN = ("titles", "headings", "ends", "says", "spares")
"""Fields with texts that a reader sees."""
_OF_SOURCE = ("source", "any_source", "lacks")
"""Fields with texts of the source."""


class _RulesFile(msgspec.Struct, forbid_unknown_fields=True):
    """A file of rules as it is written."""

    rules: list[RefusalRule]
    version: int = 1


def load_refusals(settings: Settings) -> RefusalFinder:
    """Return the finder of refusals with the rules of the settings. Raises BadInput, which names the file."""
    accepted = settings.fetch.accept_refused
    if not settings.fetch.refusal_rules:
        return RefusalFinder(accepted=accepted) if accepted else DEFAULT_FINDER
    from gossamer.storage.documents import decode_document, read_text  # imported late: few crawls have such a file

    path = Path(settings.fetch.refusal_rules)
    try:
        text = read_text(path, most_bytes=_MAX_FILE_BYTES)
        document = msgspec.convert(decode_document(path, text), _RulesFile)
        names = [rule.name for rule in RULES]
        rules = [_checked(rule, names) for rule in document.rules]
    except msgspec.ValidationError as error:
        advice = f". Kinds are {', '.join(get_args(RefusalKind))}" if ".kind" in str(error) else ""
        raise BadInput(f"{path}: {error}{advice}.", option="refusal_rules") from None
    except BadInput as error:
        place = "" if str(path) in str(error) else f"{path}: "
        raise BadInput(f"{place}{error}", option="refusal_rules") from None
    if not 0 < len(rules) <= _MAX_RULES:
        raise BadInput(f"{path}: it has {len(rules)} rules. Write 1 to {_MAX_RULES}.", option="refusal_rules")
    return RefusalFinder(rules, version=document.version, accepted=accepted)


def _checked(rule: RefusalRule, names: list[str]) -> RefusalRule:
    """Return the rule as pages are compared with it: in lower case, without double quotes. Raises BadInput. `names`:
    of the other rules, to which the name is added."""
    begin = f"the rule {rule.name!r}"
    if not rule.name or rule.name in names:
        raise BadInput(f"{begin} needs a name that no other rule has, also none of Gossamer's own.")
    names.append(rule.name)
    signs = [name for name in _SIGNS if getattr(rule, name)]
    if len(signs) + bool(rule.statuses) + (rule.most_bytes is not None) + (len(rule.source) > 1) < 2 or not signs:
        raise BadInput(f"{begin} needs two signs at least, one of them of {', '.join(_SIGNS)}: one alone is on pages.")
    texts = (rule.titles, rule.source, rule.any_source, rule.lacks, rule.headings, rule.ends, rule.says, rule.spares)
    if not all(text for each in texts for text in each):
        raise BadInput(f"{begin} has an empty text, which is on every page.")
    if (not rule.statuses or 200 in rule.statuses) and not (
        rule.titles
        or rule.source
        or rule.headings
        or rule.ends
        or rule.is_shell
        or rule.redirects_to_login
        or rule.redirects_to_consent
    ):
        raise BadInput(f"{begin} is for pages with status 200, and so needs titles, headings or source.")
    if rule.most_bytes is not None and rule.most_bytes > MOST_BYTES:
        raise BadInput(f"{begin}: most_bytes is more than {MOST_BYTES:,}, the largest page that is looked at.")
    return msgspec.structs.replace(
        rule,
        header=rule.header and (rule.header[0].lower(), rule.header[1].lower()),
        **{name: tuple(" ".join(text.lower().split()) for text in getattr(rule, name)) for name in _SHOWN},
        **{name: tuple(text.lower().replace('"', "") for text in getattr(rule, name)) for name in _OF_SOURCE},
    )
