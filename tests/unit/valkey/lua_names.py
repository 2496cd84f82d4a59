"""Names that a Lua script declares and uses, found without running it."""

import re

_KNOWN = """
and break do else elseif end false for function if in local nil not or repeat return then true until while
redis cmsgpack string math table setmetatable tonumber tostring ipairs pairs next select type unpack KEYS ARGV
"""
_TEXT = re.compile(r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'")
_COMMENT = re.compile(r"--.*|^#!.*")
_TABLE_KEY = re.compile(r"([{,]\s*)[A-Za-z_]\w*\s*=(?!=)")
_DECLARED = re.compile(r"local (?:function )?([\w ,]+)|for ([\w ,]+?) (?:in|=)")
_USED = re.compile(r"(?<![\w.:])[A-Za-z_]\w*")


def undeclared(source: str) -> set[str]:
    """Return the names that a script uses and declares nowhere. On the server each would be an error when it runs."""
    source = _COMMENT.sub("", _TEXT.sub('""', source))
    declared = {name.strip() for names in _DECLARED.findall(source) for part in names for name in part.split(",")}
    parameters = {p.strip() for names in re.findall(r"function *\w*\(([^)]*)\)", source) for p in names.split(",")}
    return set(_USED.findall(_TABLE_KEY.sub(r"\1", source))) - declared - parameters - set(_KNOWN.split())
