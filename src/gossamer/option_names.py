"""Names of options in messages, as their reader knows them: `--fresh` at a command line, `fresh=True` in a program.

A message is worded where it is made; what the reader writes is set before, for the command or the call that runs
(`reader`). Options have the names that programs write: `allow_private`.
"""

from contextvars import ContextVar


class OptionNames:
    """Names of options at a command line."""

    def label(self, option: str) -> str:
        """Return the name of the option whose value a message is about."""
        return self.named(option)

    def named(self, option: str, value: object = None) -> str:
        """Return an option as the reader writes it. `value`: what it gets; True: it is on; None: any value."""
        flag = "-o" if option == "output" and value is not None else f"--{option.replace('_', '-')}"
        if option == "resolve" and value is not None:
            value = f"{value}:ADDRESS"
        return flag if value is None or value is True else f"{flag} {value}"

    def __getitem__(self, key: str) -> str:
        """Return an option for `str.format_map`: `{timeout}`, `{insecure=True}`, `{resolve=HOST}`."""
        option, equals, value = key.partition("=")
        return self.named(option, (value == "True" or value) if equals else None)


class ProgramNames(OptionNames):
    """Names of options in a program."""

    def named(self, option: str, value: object = None) -> str:
        """Return an option as the reader writes it: `allow_private=True`."""
        if value is None or value is True:
            return f"{option}=True" if value else option
        if option == "resolve":
            return f'resolve={{"{value}": "ADDRESS"}}'
        return f'{option}="{value}"' if isinstance(value, str) else f"{option}={value}"

    def label(self, option: str) -> str:
        """Return the name of the option whose value a message is about."""
        return option


_REQUEST_FIELDS = {"deny": "deny_regex", "drop_parameter": "drop_parameters", "header": "headers"}


class RequestNames(OptionNames):
    """Names of options in requests to a service, for those that differ or may be named to its users."""

    def named(self, option: str, value: object = None) -> str:
        """Return an option as the reader writes it: `"path_repeats": 1`. A value in capitals stands for any."""
        field = _REQUEST_FIELDS.get(option, option)
        if value is None:
            return field
        if field == "drop_parameters":
            return f'"{field}": ["{value}"]'
        if option == "session" and value == "FILE":
            return '"login": "NAME" (of a session file that gossamer logins put NAME FILE has stored)'
        if value is True or (isinstance(value, str) and value.islower()):
            value = "true" if value is True else f'"{value}"'
        return f'"{field}": {value}'


_PROJECT_SETTINGS = {"refusal_rules": "GOSSAMER_FETCH__REFUSAL_RULES"}


class ProjectNames(OptionNames):
    """Names of the settings of a Scrapy project that stand for options."""

    def named(self, option: str, value: object = None) -> str:
        """Return an option as the reader writes it: `GOSSAMER_FRONTIER`, `GOSSAMER_MAX_PAGES=100`."""
        setting = _PROJECT_SETTINGS.get(option, f"GOSSAMER_{option.upper()}")
        return setting if value is None else f"{setting}={value}"


reader: ContextVar[OptionNames] = ContextVar("reader", default=OptionNames())  # noqa: B039 (it has no state)
"""Names for the reader of the messages of this task or thread."""


def label(option: str) -> str:
    """Return the name of the option whose value a message is about, or the place where the value was written."""
    return reader.get().label(option)


def named(option: str, value: object = None) -> str:
    """Return an option as the reader writes it. `value`: what it gets; True: it is on; None: any value."""
    return reader.get().named(option, value)
