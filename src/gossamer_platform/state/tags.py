"""Statements on tags of jobs: words that clients attach to jobs and select jobs by.

Fixed: a tag belongs to a job, and is deleted with it.
"""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, delete, insert, select

from gossamer_platform.state.tables import job_tags, jobs


def tagged(names: Sequence[str]) -> ColumnElement[bool]:
    """Return the condition that a job has at least one of these tags."""
    return select(job_tags.c.job_id).where(job_tags.c.job_id == jobs.c.id, job_tags.c.name.in_(names)).exists()


def tags_of(connection: Connection, job_ids: Sequence[int]) -> dict[int, list[str]]:
    """Return the tags, sorted, of each of these jobs."""
    found: dict[int, list[str]] = {number: [] for number in job_ids}
    statement = select(job_tags).where(job_tags.c.job_id.in_(job_ids)).order_by(job_tags.c.name)
    for row in connection.execute(statement):
        found[row.job_id].append(row.name)
    return found


def change_tags(
    connection: Connection, job_ids: Sequence[int], *, add: Sequence[str] = (), remove: Sequence[str] = ()
) -> None:
    """Add tags to jobs, and remove others. May be repeated."""
    if remove:
        gone = (job_tags.c.job_id.in_(job_ids), job_tags.c.name.in_(remove))
        connection.execute(delete(job_tags).where(*gone))
    if not add:
        return
    # Locked: of two calls that add the same tag at the same time, the second sees what the first has added.
    connection.execute(
        select(jobs.c.id).where(jobs.c.id.in_(job_ids)).order_by(jobs.c.id).with_for_update(key_share=True)
    )
    known = tags_of(connection, job_ids)
    new = [
        {"job_id": number, "name": tag} for number in known for tag in dict.fromkeys(add) if tag not in known[number]
    ]
    if new:
        connection.execute(insert(job_tags), new)
