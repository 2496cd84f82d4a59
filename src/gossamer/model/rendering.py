"""Steps that a browser takes on a page before its document is read: data, never code.

Terms (the options of a submission, which the frontier stores) hold them, so names and meanings of actions are fixed.
"""

from typing import Literal, get_args

import msgspec

from gossamer.errors import BadInput

Action = Literal["click", "fill", "scroll", "submit", "wait"]
MOST_STEPS = 20
MOST_TIMES = 200
"""Largest number of repetitions of one step. The seconds of the page bound all steps together."""
DEFAULT_TIMES = 50
"""Repetitions of a click or a scroll that names no number."""
_EXAMPLES = "scroll, scroll 10, click .more, click .more 5, wait .list, fill #q=shoes, submit form"


class RenderStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step."""

    action: Action
    """click: click the first element, again until there is none or nothing changes; fill: set the value of a field;
    scroll: scroll to the end, again until the page grows no more; submit: send a form by the page's own script; wait:
    until there is such an element."""
    selector: str = ""
    """CSS selector of the element. Empty for scroll."""
    times: int = 1
    """Largest number of repetitions."""
    value: str = ""
    """Value of `fill`."""


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


def _after_bracket(rest: str) -> tuple[str, str, str]:
    """Return selector and value of a field whose selector has a bracket: `input[name=q]=shoes`."""
    before, _, value = rest.partition("]=")
    return f"{before}]", "=", value
