"""Steps that a browser takes on a page before its document is read: data, never code.

Terms (the options of a submission, which the frontier stores) hold them, so names and meanings of actions are fixed.
"""

import re
from typing import Literal, get_args

import msgspec

from gossamer.errors import BadInput

Action = Literal["click", "consent", "fill", "scroll", "submit", "wait"]
OtherSites = Literal["none", "scripts", "all"]
"""Requests of a page to other registered domains. scripts: scripts, style sheets and data only."""
ExtraKind = Literal["images", "fonts", "media", "trackers"]
"""Kinds of what pages load only if they are named."""
MOST_STEPS = 20
MOST_TIMES = 200
"""Largest number of repetitions of one step. The seconds of the page bound all steps together."""
DEFAULT_TIMES = 50
"""Repetitions of a click or a scroll that names no number."""
MOST_WAIT_SECONDS = 60.0
"""Longest time that one step waits. The seconds of the page bound all steps together."""
_EXAMPLES = (
    "scroll, scroll 10, click .more, click .more 5, wait .list, wait .list 5, wait 2.5, consent #accept, "
    "fill #q=shoes, submit form"
)
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")


class RenderStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step."""

    action: Action
    """click: click the first element, again until there is none or nothing changes; consent: click the first element
    once if there is one; fill: set the value of a field; scroll: scroll to the end, again until the page grows no more;
    submit: send a form by the page's own script; wait: until there is such an element, or for a time."""
    selector: str = ""
    """CSS selector of the element. Empty for scroll, and for wait for a time."""
    times: int = 1
    """Largest number of repetitions."""
    value: str = ""
    """Value of `fill`."""
    seconds: float = 0.0
    """Longest time that `wait` waits for its element, 0: that of the page; without a selector, the time itself."""


class RenderTerms(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rules for pages that a browser builds, in place of a worker's own settings. 0, empty: the worker's."""

    seconds: float = 0.0
    """Time in which a page is built."""
    quiet_seconds: float = 0.0
    """Time without a change after which a document is complete."""
    other_sites: OtherSites | Literal[""] = ""
    load: tuple[ExtraKind, ...] = ()
    """Kinds that are loaded beside those of the worker."""


def parse_step(text: str) -> RenderStep:
    """Return the step that a person has written. Raises BadInput; the caller checks the selector."""
    action, _, rest = text.strip().partition(" ")
    rest = rest.strip()
    if action not in get_args(Action):
        raise BadInput(f"there is no step {text!r:.80}. Write one of: {_EXAMPLES}.")
    if action == "fill":
        selector, equals, value = rest.partition("=") if "]=" not in rest else _after_bracket(rest)
        if not equals or not selector.strip():
            raise BadInput(f"cannot read {text!r:.80}. Write fill SELECTOR=VALUE, for example fill #q=shoes.")
        return RenderStep("fill", selector.strip(), 1, value)
    if action == "wait" and rest:
        return _parse_wait(text, rest)
    times = DEFAULT_TIMES if action in ("click", "scroll") else 1
    words = rest.split()
    if words and words[-1].isascii() and words[-1].isdigit() and action in ("click", "scroll"):
        times = int(words.pop())
        rest = " ".join(words)
    if not 1 <= times <= MOST_TIMES:
        raise BadInput(f"{text!r:.80} repeats {times:,} times; write 1 to {MOST_TIMES}.")
    if (action == "scroll") is bool(rest):
        advice = "scroll needs no selector" if rest else f"{action} needs the selector of an element"
        raise BadInput(f"{text!r:.80}: {advice}. Write one of: {_EXAMPLES}.")
    return RenderStep(action, rest, times)  # type: ignore[arg-type]


def written_step(step: RenderStep) -> str:
    """Return a step as a person writes it: the reverse of `parse_step`."""
    if step.action == "fill":
        return f"fill {step.selector}={step.value}"
    number = step.seconds or (step.times if step.action in ("click", "scroll") else 0)
    return " ".join(filter(None, (step.action, step.selector, f"{number:g}" if number else "")))


def _parse_wait(text: str, rest: str) -> RenderStep:
    """Return a step that waits. No selector ends with a number that stands alone."""
    before, _, last = rest.rpartition(" ")
    if not _SECONDS.fullmatch(last):
        return RenderStep("wait", rest)
    seconds = float(last)
    if not 0 < seconds <= MOST_WAIT_SECONDS:
        raise BadInput(f"{text!r:.80} waits {seconds:g} s; write more than 0 and at most {MOST_WAIT_SECONDS:g}.")
    return RenderStep("wait", before.strip(), seconds=seconds)


def _after_bracket(rest: str) -> tuple[str, str, str]:
    """Return selector and value of a field whose selector has a bracket: `input[name=q]=shoes`."""
    before, _, value = rest.partition("]=")
    return f"{before}]", "=", value
