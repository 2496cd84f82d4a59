"""Compiles CSS and XPath selectors, and evaluates them: the fields of extraction rules and `Page.css` use them.

CSS is matched by lexbor on the tree that links are taken from, XPath by lxml, an optional package. Selectors are
checked before a crawl starts, so that none fails on its pages. Some selectors lexbor answers wrongly without an error:
`_Scanner` refuses them by name, or rewrites them so that the answer is right (tests compare with another engine).

Words of CSS: a compound is an element with its conditions, `li.new:not(.old)`. Combinators stand between compounds: `>`
(child), `+` (next sibling), `~` (later sibling), or white space (descendant). Commas separate alternatives.

Fixed: the meaning of accepted selectors, which stored rules of running crawls contain; and that XPath has no EXSLT
expressions, whose backtracking a page could exploit.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from gossamer.errors import BadInput
from gossamer.extras import install_advice

if TYPE_CHECKING:
    from lxml import etree

MAX_SELECTOR_LENGTH = 1000
"""Longest selector. With a lower value, workers refuse rules of running crawls."""

MAX_SEARCHES = 3
"""Number of `:has()` in one CSS selector, and of descendant steps in predicates of one XPath. Each may multiply the
time by the number of elements. A lower value would refuse rules of running crawls."""

ITSELF = "."
"""Selector of the element itself, where a selector is relative to one. Fixed: stored rules contain it."""

_TEXT, _ALL, _ATTRIBUTE = "text", "all", "attr"
"""Kinds of pseudo-elements, and the name of a `::text` that asks for all texts. Only this file uses them."""
_TOKEN = re.compile(
    r"""
    (?P<string>"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+')
    |(?P<escape>\\.)
    |(?P<element>::[\w-]*+)                    # a pseudo-element, without its argument
    |(?P<function>:[\w-]++\()                 # `:not(`
    |(?P<pseudo>:[\w-]++)                     # `:enabled`
    |(?P<of>(?<=\s)of(?=\s))                  # in `:nth-child(2 of .new)`, a selector follows
    |(?P<combinator>\s*+[>+~]\s*+|\s++)
    |(?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_LISTS = frozenset((":is(", ":where(", ":not(", ":has("))
"""Functions that take selectors."""
_BEGINNING_FUNCTION = re.compile(r"\s*:(?:is|where|not|has)\(", re.IGNORECASE)
"""One of _LISTS."""
_WRONG = {
    ":enabled": "lexbor matches nearly every element with it; write :not([disabled])",
    ":disabled": "lexbor matches no option, optgroup or fieldset with it; write [disabled]",
}
"""Pseudo-classes that lexbor answers wrongly, and what to write instead."""
_HINTS = (
    (re.compile(r":contains\("), '; for text, write :lexbor-contains("text")'),
    (
        re.compile(r":(first|last|eq|gt|lt)(?![\w-])"),
        "; :first, :last and :eq() are no CSS, a field takes the first match",
    ),
    (re.compile(r"(^|,)\s*[>+~]|:scope"), "; selectors are relative already, without :scope or a leading >"),
    (re.compile(r"=\s*[^\s\"'\]\w-]"), '; quote the value of the attribute: [href="/x"]'),
)
"""Reasons, by the part of a selector that cannot be parsed."""


class CssSelector(msgspec.Struct, frozen=True):
    """A checked CSS selector, with the part of its matches that it asks for."""

    text: str
    """As written."""
    css: str
    """Selector for lexbor, without the pseudo-element. Empty: only the element itself (`ITSELF`)."""
    takes_text: bool = False
    """True: `::text` asks for the texts directly in each match."""
    takes_all_text: bool = False
    """True: ` ::text`, after a space, asks for all texts in each match, those of elements inside it, too."""
    attribute: str | None = None
    """The attribute that `::attr(x)` asks for."""
    is_list: bool = False
    """True: there are several alternatives. lexbor lists an element once for each that it matches."""
    steps: "tuple[tuple[_Step, ...], ...]" = ()
    """The steps of each alternative, from ancestor to descendant. Empty: lexbor matches the selector as a whole."""
    is_quadratic: bool = False
    """True: the time may grow with the square of the number of elements that one element contains."""

    def select(self, node: LexborNode) -> list[LexborNode]:
        """Return the matches: the node itself or elements in it, each once, in document order."""
        if not self.css:
            return [node]
        if self.steps:
            return _select_in_steps(node, self.steps)
        found = node.css(self.css)
        return list({match.mem_id: match for match in found}.values()) if self.is_list else found

    def first(self, node: LexborNode) -> LexborNode | None:
        """Return the first match. None: there is none."""
        if self.steps:
            return next(iter(self.select(node)), None)
        return node.css_first(self.css) if self.css else node

    def values(self, node: LexborNode) -> list[str]:
        """Return what the selector asks for, for all matches: texts, values of the attribute, or HTML."""
        matches = self.select(node)
        if self.takes_text:
            nodes = (text for match in matches for text in _texts(match, deep=self.takes_all_text))
            # A match may be inside another one, which then has the same texts.
            return list({node.mem_id: node.text_content or "" for node in nodes}.values())
        if self.attribute is not None:
            found = (attribute_of(match, self.attribute) for match in matches)
            return [value for value in found if value is not None]
        return [match.html or "" for match in matches]


class _Step(msgspec.Struct, frozen=True):
    """Part of a selector between two descendant combinators: `ul > li` of `nav ul > li a`."""

    css: str
    combinators: str
    """Its combinators in order: `>` for `ul > li`, `>+` for `ul > li + li`."""


def _select_in_steps(node: LexborNode, alternatives: "tuple[tuple[_Step, ...], ...]") -> list[LexborNode]:
    """Return the matches in document order.

    lexbor tries every combination of ancestors for `a b c d`, which on nested elements takes hours. Step by step it
    takes time that grows with the number of elements only: a descendant of a match is also one of the outermost match
    around it, so the next step searches only those, which do not overlap.
    """
    found: dict[int, LexborNode] = {}
    for first, *others in alternatives:
        matches = node.css(first.css)
        for step in others:
            inner: dict[int, LexborNode] = {}
            for outer in _outermost(matches):
                for match in outer.css(step.css):
                    if _begins_inside(match, step.combinators, outer):
                        inner[match.mem_id] = match
            matches = list(inner.values())
        found.update((match.mem_id, match) for match in matches)
    if len(alternatives) == 1 or len(found) < 2:
        return list(found.values())
    return [match for match in node.traverse() if match.mem_id in found]


def _outermost(matches: list[LexborNode]) -> list[LexborNode]:
    """Return those of the matches, which are in document order, that are in no other one."""
    is_inside = {match.mem_id: True for match in matches}
    """True for an element that is a match or in one; False for one that is known to be in none."""
    kept: list[LexborNode] = []
    for match in matches:
        path: list[int] = []
        parent = match.parent
        while parent is not None and parent.mem_id not in is_inside:
            path.append(parent.mem_id)
            parent = parent.parent
        inside = parent is not None and is_inside[parent.mem_id]
        is_inside.update(dict.fromkeys(path, inside))
        if not inside:
            kept.append(match)
    return kept


def _begins_inside(match: LexborNode, combinators: str, outer: LexborNode) -> bool:
    """Return whether the first element of a step is inside `outer`, and not `outer` itself. `match`: its last element.

    lexbor finds the `li` in a `ul` by `ul > li`, though that `ul` is not inside itself. So this goes back from the last
    element by the combinators. Siblings have the same parent: `+` and `~` need no step."""
    element: LexborNode | None = match
    border = outer.mem_id
    for combinator in reversed(combinators):
        if element is None or element.mem_id == border:
            return False
        if combinator == ">":
            element = element.parent
    return element is not None and element.mem_id != border


def attribute_of(node: LexborNode, name: str) -> str | None:
    """Return the value of an attribute, empty if it has none. None: the element lacks the attribute."""
    attributes = node.attributes
    key = name if name in attributes else next((one for one in attributes if one.lower() == name), None)  # `viewBox`
    return None if key is None else attributes[key] or ""


def _texts(node: LexborNode, *, deep: bool) -> Iterator[LexborNode]:
    """Yield the text nodes directly in this element; `deep`: all those in it."""
    for child in node.traverse(include_text=True) if deep else node.iter(include_text=True):
        if child.tag == "-text":
            yield child


@lru_cache(maxsize=512)
def compile_css(text: str) -> CssSelector:
    """Return the checked selector. `::text` and `::attr(name)` may end it, or each of its alternatives.

    Raises BadInput for one that cannot be parsed, and for one that lexbor would answer wrongly.
    """
    if text.strip() == ITSELF:
        return CssSelector(text, "")
    if len(text) > MAX_SELECTOR_LENGTH:
        raise BadInput(f"the selector has {len(text):,} characters; at most {MAX_SELECTOR_LENGTH:,} are accepted")
    scanner = _Scanner(text)
    alternatives = scanner.alternatives
    pseudo_elements = {alternative.pseudo_element for alternative in alternatives}
    if len(pseudo_elements) > 1:
        raise BadInput(f"all alternatives of {text!r} must end with the same ::text or ::attr(), or none of them")
    css = ", ".join(alternative.css for alternative in alternatives)
    if not all(alternative.css for alternative in alternatives):
        raise BadInput(f"the CSS selector {text!r} is empty, or one of its alternatives is")
    try:
        LexborHTMLParser("").css(css)
    except (SelectolaxError, UnicodeError):
        raise BadInput(f"cannot parse the CSS selector {text!r}{_hint(text)}") from None
    kind, name = pseudo_elements.pop() or ("", "")
    if kind == _ATTRIBUTE and any(alternative.asks_descendants for alternative in alternatives):
        # `div ::attr(id)` asks for the attributes of a div and of the elements in it.
        alternatives += [alternative.with_descendants() for alternative in alternatives]
        css = ", ".join(alternative.css for alternative in alternatives)
    in_steps = any(alternative.backtracks for alternative in alternatives)
    return CssSelector(
        text,
        css,
        takes_text=kind == _TEXT,
        takes_all_text=kind == _TEXT and name == _ALL,
        attribute=name if kind == _ATTRIBUTE else None,
        is_list=len(alternatives) > 1,
        steps=tuple(tuple(alternative.steps) for alternative in alternatives) if in_steps else (),
        is_quadratic=scanner.is_quadratic,
    )


def _hint(text: str) -> str:
    """Return what to write instead of a selector that cannot be parsed; empty if that is not known."""
    return next((hint for part, hint in _HINTS if part.search(text)), "")


class _Alternative(msgspec.Struct):
    """One of the selectors between commas."""

    steps: list[_Step] = []
    """Those that are complete. All of them after the scan."""
    pseudo_element: tuple[str, str] | None = None
    """(_TEXT, _ALL or ""), or (_ATTRIBUTE, name of the attribute). None: there is none."""
    asks_descendants: bool = False
    """True: a space stands before the pseudo-element."""
    _css: str = ""
    """The step that is being read, as far as it is."""
    _combinators: str = ""
    """Its combinators."""
    _combinator: str = ""
    """Combinator that was read last, if nothing has been read behind it; a space for that of descendants."""

    def add(self, piece: str) -> None:
        """Append a piece that is no combinator."""
        if self._combinator == " " and self._css:
            self.end_step()
        elif self._combinator and self._combinator != " ":
            self._css += f" {self._combinator} "
            self._combinators += self._combinator
        self._combinator = ""
        self._css += piece

    def combine(self, combinator: str) -> None:
        """Note a combinator, or a space before or after another one."""
        combinator = combinator.strip() or " "
        if combinator != " " and self._combinator not in ("", " "):
            self._css += f" {self._combinator} "  # two in a row, which lexbor refuses
        self._combinator = combinator if combinator != " " else self._combinator or " "

    def begin_pseudo_element(self) -> None:
        """Note that a pseudo-element begins here. Without a compound before it, it is for any element, `*`."""
        if self._combinator not in ("", " ") or not self._css:
            self.add("*")
        self.asks_descendants = self._combinator == " "
        self._combinator = ""

    def end_step(self) -> None:
        """Complete the step that is being read."""
        if self._combinator not in ("", " "):
            self._css += f" {self._combinator}"  # at the end of the selector, which lexbor refuses
        if self._css:
            self.steps.append(_Step(self._css, self._combinators))
        self._css = self._combinators = self._combinator = ""

    @property
    def css(self) -> str:
        return " ".join(step.css for step in self.steps)

    @property
    def backtracks(self) -> bool:
        """True: lexbor might try very many combinations of elements."""
        return len(self.steps) > 2 or (len(self.steps) == 2 and any("(" in step.css for step in self.steps))

    def with_descendants(self) -> "_Alternative":
        """Return the alternative that selects all elements in the matches of this one."""
        return _Alternative([*self.steps, _Step("*", "")], self.pseudo_element)


class _Scanner:
    """Splits a selector into its alternatives, and refuses or rewrites what lexbor answers wrongly.

    lexbor loses matches where a compound begins with a function such as `:is()` and a combinator follows, and inside
    `:has()`. Inside `:has()` it is refused; elsewhere `*` is put before it, which means the same.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._closers: list[str] = []
        """Closing brackets that are expected. Empty: outside of brackets."""
        self._functions: list[str] = []
        """For each of `_closers`, what it closes: a function such as `:is(`, or a bracket."""
        self._begins_compound = True
        """True: the next piece is the first one of a compound."""
        self._searches = 0
        """Number of `:has()`."""
        self._inner_combinators = 0
        """Number of combinators of descendants and later siblings inside functions."""
        self._at = 0
        """Position behind the piece that is being read."""
        self.is_quadratic = False
        self.alternatives = [_Alternative()]
        self._scan()

    def _scan(self) -> None:
        """Read the selector piece by piece (_TOKEN). Raises BadInput."""
        text = self._text
        at, end = 0, len(text)
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._error("is not valid")
            self._at = at = match.end()
            kind, piece = match.lastgroup or "", match[0]
            alternative = self.alternatives[-1]
            ended_by = alternative.pseudo_element
            if not self._closers and ended_by is not None and piece.strip() not in ("", ","):
                raise self._error(f"has {piece.strip()!r} after ::{ended_by[0]}, which must come last")
            # Outside of brackets, commas end an alternative, combinators a compound. `_checked` takes all else.
            if kind == "element":
                at = self._pseudo_element(piece, at)
            elif kind == "other" and piece == "," and not self._closers:
                self.alternatives.append(_Alternative())
                self._begins_compound = True
            elif kind == "combinator" and not self._closers:
                self._begins_compound = True
                alternative.combine(piece)
                if "~" in piece:
                    self.is_quadratic = True
            else:
                alternative.add(self._checked(kind, piece))
        if self._closers:
            raise self._error(f"lacks a closing {self._closers[-1]}")
        for alternative in self.alternatives:
            alternative.end_step()
            if any(step.combinators.count("~") > 1 for step in alternative.steps):
                raise self._error("has more than one ~ in a row, which would take too long")

    def _checked(self, kind: str, piece: str) -> str:
        """Return this piece as lexbor should get it. Keeps track of brackets and of the beginnings of compounds."""
        begins = self._begins_compound
        # Elsewhere, as in `[href="a b"]` or `:lang(de)`, white space and commas separate no compounds.
        in_selector = not self._closers or self._functions[-1] in _LISTS or self._functions[-1].startswith(":nth")
        if kind == "function":
            self._closers.append(")")
            self._functions.append(piece.lower())
            return self._function(piece.lower(), piece, begins)
        if kind == "pseudo" and piece.lower() in _WRONG:
            raise self._error(f"has {piece}: {_WRONG[piece.lower()]}")
        if kind == "other" and piece in "[(":
            self._closers.append("]" if piece == "[" else ")")
            self._functions.append(piece)
        elif kind == "other" and piece in "])":
            if not self._closers or self._closers.pop() != piece:
                raise self._error(f"has a {piece} that nothing opens")
            self._functions.pop()
        elif kind == "combinator" and self._functions[-1] in _LISTS:
            self._check_inner(piece, begins)
        self._begins_compound = in_selector and (kind in ("combinator", "of") or piece == ",")
        return piece

    def _function(self, name: str, piece: str, begins: bool) -> str:
        """Return the piece that opens a function as lexbor should get it: with `*` before it if it `begins` a compound.

        `name`: the piece in lower case, `:is(` for example."""
        outer = self._functions[:-1]
        if name == ":has(":
            self._searches += 1
            if self._searches > MAX_SEARCHES:
                raise self._error(f"has more than {MAX_SEARCHES} of :has(), which would take too long")
        if name.startswith(":nth"):
            self.is_quadratic = True
        self._begins_compound = name in _LISTS
        if not begins:
            return piece
        if name in _LISTS and ":has(" in outer:
            raise self._error(
                f"has {name}…) at the beginning of a part of :has(…), which lexbor answers wrongly; write *{name}…)"
            )
        return f"*{piece}"

    def _check_inner(self, piece: str, begins: bool) -> None:
        """Refuse combinators inside functions for which lexbor might try very many combinations of elements."""
        combinator = piece.strip()  # empty: that of descendants, or white space without a meaning
        if combinator == "~":
            self.is_quadratic = True
        if begins or combinator in (">", "+") or self._text[: self._at].endswith((",", "(")):
            return  # `:has(> b)`, or white space around a comma
        rest = self._text[self._at :]
        if (not combinator and rest.lstrip()[:1] in (")", ",")) or _BEGINNING_FUNCTION.match(rest):
            return  # white space at an end, or what `_function` refuses or rewrites
        self._inner_combinators += 1
        if ":has(" in self._functions:
            raise self._error(f"has {'~' if combinator else 'a descendant'} inside :has(…), which would take too long")
        if self._inner_combinators > 1:
            raise self._error("has more than one space or ~ inside functions, which would take too long")

    def _pseudo_element(self, piece: str, at: int) -> int:
        """Read `::text` or `::attr(name)`. Returns where the selector goes on. `at`: position behind the piece."""
        alternative = self.alternatives[-1]
        if self._closers:
            raise self._error(f"has {piece} inside brackets")
        alternative.begin_pseudo_element()
        if piece == "::text":
            alternative.pseudo_element = (_TEXT, _ALL if alternative.asks_descendants else "")
            return at
        argument = re.compile(r"\(\s*([\w:.-]+)\s*\)").match(self._text, at)
        if piece != "::attr" or argument is None:
            raise self._error(f"has {piece}, but only ::text and ::attr(name) are known")
        alternative.pseudo_element = (_ATTRIBUTE, argument[1].lower())
        return argument.end()

    def _error(self, reason: str) -> BadInput:
        return BadInput(f"the CSS selector {self._text!r} {reason}")


class XPathSelector(msgspec.Struct, frozen=True):
    """A compiled XPath expression."""

    text: str
    """As written."""
    evaluate: "etree.XPath"

    def select(self, element: Any) -> list[Any]:
        """Return the matches: elements of lxml and texts. A number or truth value counts as one text. None has none."""
        try:
            found: Any = self.evaluate(element)
        except Exception:  # lxml's limits, and functions that do not fit their arguments on this page: nothing found
            return []
        if isinstance(found, list):
            return found
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        return [] if found in ("", None) else [found if isinstance(found, str) else str(found).lower()]


_DESCENDANTS = re.compile(r"//|\b(?:descendant|descendant-or-self|ancestor|following|preceding)(?:-sibling)?\s*::")
"""Steps of an XPath that look at many elements."""


def compile_xpath(text: str) -> XPathSelector:
    """Return the compiled expression. Raises BadInput for one that is not valid, and if lxml is not installed."""
    if len(text) > MAX_SELECTOR_LENGTH:
        raise BadInput(f"the XPath has {len(text):,} characters; at most {MAX_SELECTOR_LENGTH:,} are accepted")
    try:
        from lxml import etree
    except ImportError:
        raise BadInput(f"XPath needs lxml: {install_advice('xpath')}") from None
    if sum(len(_DESCENDANTS.findall(predicate)) for predicate in _predicates(text)) > MAX_SEARCHES:
        raise BadInput(
            f"the XPath {text!r:.200} searches more than {MAX_SEARCHES} times in its predicates, which would "
            "take too long"
        )
    try:
        compiled = etree.XPath(text, regexp=False, smart_strings=False)
        compiled(etree.Element("html"))  # finds unknown functions and prefixes
    except (etree.XPathError, ValueError) as fault:
        raise BadInput(f"cannot parse the XPath {text!r:.200}: {fault}") from None
    return XPathSelector(text, compiled)


def _predicates(text: str) -> list[str]:
    """Return the outermost parts of an XPath in square brackets."""
    found: list[str] = []
    depth = start = 0
    for match in re.finditer(r"\"[^\"]*\"|'[^']*'|[\[\]]", text):
        if match[0] == "[":
            depth += 1
            start = match.end() if depth == 1 else start
        elif match[0] == "]" and depth:
            depth -= 1
            if not depth:
                found.append(text[start : match.start()])
    return found
