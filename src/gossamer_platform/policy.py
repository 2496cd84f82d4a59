"""Policy of a job: its limits, and how often it is tried again. Each limit has its name, range and meaning here.

The others follow, and a test compares them: `LimitColumns` in `state/tables.py` (with a migration), `LimitsModel` in
`v1/models.py`, `LIMITS` in `gossamer/cli/targets.py`, and `AttemptLimits` in `link.py` where a node enforces it. Names
are those of the API: fixed.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(ge=0, le=366 * 86400, allow_inf_nan=False)]
_Bytes = Annotated[int, Field(ge=0, lt=2**63)]
_Count = Annotated[int, Field(ge=0, lt=2**31)]
_Reason = Annotated[str, Field(min_length=1, max_length=200)]


class JobPolicy(BaseModel):
    """Limits of a job, and how often it is tried again. None: of a job, what its spider or project has; in a change of
    a project, what it had."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")

    retries: Annotated[int, Field(ge=0, le=100)] | None = None
    """Number of further attempts after one failed, for whatever reason. A cancelled job is not tried again."""
    retry_seconds: Seconds | None = None
    """Pause before the first retry. Each further pause is twice as long, up to an hour."""
    time_limit: Seconds | None = None
    """Seconds after which an attempt is ended. 0: none."""
    memory_limit: _Bytes | None = None
    """Bytes of memory of all processes of an attempt together at which they are killed. 0: none."""
    file_limit: _Bytes | None = None
    """Bytes of the log of an attempt, and of its items, at which it is ended. 0: none."""
    open_files_limit: _Count | None = None
    """Files and connections that each process of an attempt may have open at a time. 0: as many as the node allows."""
    pending_limit: Seconds | None = None
    """Seconds after which a job that still waits to be started has failed. 0: none."""
    min_items: _Count | None = None
    """Number of items below which an attempt has failed, though it ended well."""
    max_errors: _Count | None = None
    """Number of errors in the log from which on an attempt has failed. 0: any number is allowed."""
    good_reasons: Annotated[list[_Reason], Field(max_length=50)] | None = None
    """Scrapy's finish_reasons with which an attempt has ended well. Null: finished, and the limits of items, pages and
    time that a project sets itself."""

    def given(self) -> dict[str, Any]:
        """Return the columns that are not None."""
        return self.model_dump(include=set(JobPolicy.model_fields), exclude_none=True)
