"""A limit of jobs stands in `JobPolicy`; whatever stores, shows, reads or enforces limits has the same ones."""

from typing import get_args

import pytest
from annotated_types import Lt
from sqlalchemy import BigInteger, Double, Integer

from gossamer.cli.targets import LIMITS
from gossamer_platform.link import AttemptLimits, JobAssignment
from gossamer_platform.policy import JobPolicy, Seconds
from gossamer_platform.state import tables
from gossamer_platform.v1.models import JobPolicyModel, LimitsModel

_LIMITS = [name for name in JobPolicy.model_fields if name != "retries"]


def test_every_limit_is_stored_shown_and_read() -> None:
    for table in (tables.projects, tables.spider_policies):
        assert set(JobPolicy.model_fields) <= set(table.columns.keys())
    assert set(_LIMITS) <= set(tables.jobs.columns.keys())
    assert list(LIMITS) == _LIMITS
    assert ["retry_seconds", *LimitsModel.model_fields] == _LIMITS
    assert list(JobPolicyModel.model_fields) == list(JobPolicy.model_fields)


def test_what_a_node_enforces_is_a_limit_and_reaches_it() -> None:
    assert set(AttemptLimits.__struct_fields__) < set(_LIMITS)
    assert set(AttemptLimits.__struct_fields__) < set(JobAssignment.__struct_fields__)


@pytest.mark.parametrize("name", _LIMITS)
def test_a_limit_has_the_same_unit_and_range_everywhere(name: str) -> None:
    kind, _ = get_args(JobPolicy.model_fields[name].annotation)
    bounds = [part.lt for part in getattr(kind, "__metadata__", [])[0].metadata if isinstance(part, Lt)] if kind else []
    stored = type(tables.jobs.columns[name].type)
    unit = "seconds" if kind == Seconds else "bytes" if 2**63 in bounds else "list" if name == "good_reasons" else ""
    assert LIMITS[name] == unit
    if unit != "list":
        assert stored is (Double if unit == "seconds" else BigInteger if unit == "bytes" else Integer)
