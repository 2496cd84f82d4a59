"""Statements on projects and versions: deploy, find, list, remove.

A project exists for clients while it has a ready version. Fixed: that a version becomes ready in the same transaction
in which it replaces an earlier one of its name, so that a broken deployment changes nothing.
"""

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, and_, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from gossamer.storage.sql.clock import DatabaseNow
from gossamer.storage.sql.rows import add_row, fetch, fetch_first, fetch_one
from gossamer_platform.lifecycle import ACTIVE, VersionEvent, VersionState
from gossamer_platform.names import file_stem, in_order, means_version
from gossamer_platform.policy import JobPolicy
from gossamer_platform.state.changes import change_version
from gossamer_platform.state.row_page import ALL_ROWS, RowPage
from gossamer_platform.state.tables import (
    Project,
    VersionRow,
    environments,
    inputs,
    job_groups,
    jobs,
    projects,
    schedules,
    spider_policies,
    variables,
    versions,
    webhooks,
)

WANTED: Final = "wanted"
"""Value of the column `listing` of a version whose spiders a node is to list. Fixed, because it is stored."""
_BROKEN_KEPT: Final = 10
"""Number of a project's latest broken versions that are kept, so that their reasons can be read."""
_LISTED: Final = 20
"""Versions whose spiders are listed together. More make a list longer to find."""
_FORGET_SECONDS: Final = 3600.0
"""Age from which a removed version and an empty project are deleted. A client may still wait for the build of a newer
one."""
_TRY_SECONDS: Final = 86400.0
"""Time since its deployment for which a version waits for a node that can build it."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 2.0, 600.0
"""Bounds of the pause between two attempts to list the spiders. The pause is half of the time since the deployment."""


class Version(VersionRow):
    """A version with the name of its project."""

    project: str


class VersionFile(NamedTuple):
    """A version that jobs can run, with its artefact."""

    id: int
    digest: str
    file: str
    deployed_at: float


class ReadyVersion(NamedTuple):
    """A version that jobs can run."""

    id: int
    name: str
    """Empty: the project has no artefact; its code is on the node's Python path."""
    digest: str
    spiders: list[str] | None
    """None: not listed yet."""
    file: str
    settings_module: str


def project_id(connection: Connection, name: str) -> int:
    """Return the number of the project, which is created and locked as by `locked_project`."""
    return int(locked_project(connection, name).id)


def locked_project(connection: Connection, name: str) -> Project:
    """Return the project, and create it if there is none of this name.

    The project is locked until the end of the transaction: of two transactions that add to it, one waits.
    """
    # NO KEY UPDATE: a row that only refers to the project may be inserted meanwhile. SQLite has one writer anyway.
    lock = select(projects).where(projects.c.name == name).with_for_update(key_share=True)
    found = fetch_first(connection, Project, lock)
    if found is None:
        # The new project takes its turn after the projects that wait now, and before those that have just had theirs.
        turn = select(func.coalesce(func.min(projects.c.turn), 0)).scalar_subquery()
        with contextlib.suppress(IntegrityError), connection.begin_nested():  # another manager has just created it
            connection.execute(insert(projects).values(name=name, created_at=DatabaseNow(), turn=turn))
        found = fetch_one(connection, Project, lock)
    return found


def lock_project(connection: Connection, name: str) -> None:
    """Keep others from adding to a project, or changing it, until the end of the transaction, if it exists."""
    connection.execute(select(projects.c.id).where(projects.c.name == name).with_for_update(key_share=True))


def project_row(connection: Connection, name: str) -> Project | None:
    """Return a project. None: there is none of this name."""
    return fetch_first(connection, Project, select(projects).where(projects.c.name == name))


def project_rows(connection: Connection, page: RowPage = ALL_ROWS, *, only: str = "") -> list[Project]:
    """Return a page of all projects, or the one of this name; in the order of their creation unless the page has the
    other one."""
    statement = select(projects).where(*([projects.c.name == only] if only else []))
    return fetch(connection, Project, page.of(statement, projects.c.id))


def change_project(connection: Connection, name: str, policy: JobPolicy, **columns: Any) -> bool:
    """Change the policy of a project's new jobs, and other columns. Return False if there is no such project."""
    changes = {**policy.given(), **columns}
    if not changes:
        return project_row(connection, name) is not None
    return bool(connection.execute(update(projects).where(projects.c.name == name).values(**changes)).rowcount)


def project_names(connection: Connection) -> list[str]:
    """Return the names of the projects that have a ready version, in the order of their creation."""
    ready = select(versions.c.project_id).where(versions.c.state == VersionState.READY)
    statement = select(projects.c.name).where(projects.c.id.in_(ready)).order_by(projects.c.id)
    return list(connection.scalars(statement))


def ready_versions(connection: Connection, project: str) -> list[ReadyVersion]:
    """Return the versions of the project that jobs can run, the latest last. Empty: the project does not exist."""
    ready = _with_project().where(projects.c.name == project, versions.c.state == VersionState.READY)
    rows = _latest_last(fetch(connection, Version, ready.order_by(versions.c.id)))
    return [ReadyVersion(row.id, row.name, row.digest, row.spiders, row.file, row.settings_module) for row in rows]


def project_page(connection: Connection, *, after: str, limit: int) -> dict[str, list[str]]:
    """Return up to `limit` projects that have a ready version, by name, with the names of these, the latest last."""
    is_ready = versions.c.state == VersionState.READY
    has_ready = select(versions.c.id).where(versions.c.project_id == projects.c.id, is_ready).exists()
    page = select(projects.c.id, projects.c.name).where(projects.c.name > after, has_ready)
    names = {row.id: row.name for row in connection.execute(page.order_by(projects.c.name).limit(limit))}
    return {names[number]: found for number, found in ready_names(connection, list(names)).items()}


def ready_names(connection: Connection, project_ids: Sequence[int]) -> dict[int, list[str]]:
    """Return for each of these projects the names of the versions that jobs can run, the latest last."""
    columns = (versions.c.project_id, versions.c.name, versions.c.digest, versions.c.deployed_at)
    wanted = (versions.c.project_id.in_(project_ids), versions.c.state == VersionState.READY)
    found: dict[int, list[Any]] = {number: [] for number in project_ids}
    for row in connection.execute(select(*columns).where(*wanted).order_by(versions.c.id)):
        found[row.project_id].append(row)
    return {number: [row.name for row in _latest_last(rows)] for number, rows in found.items()}


def _latest_last(rows: Iterable[VersionRow]) -> list[VersionRow]:
    # A version without an artefact is older than any other: an egg of the same name takes precedence over it.
    by_name = {row.name: row for row in sorted(rows, key=lambda row: bool(row.digest))}
    names = in_order((row.name, row.deployed_at) for row in by_name.values() if row.digest)
    return [by_name[name] for name in ([""] if "" in by_name else []) + names]


def find_version(connection: Connection, project: str, name: str | None) -> ReadyVersion | None:
    """Return a version that jobs can run. `name` may be written as given at the deployment, or, where only one version
    is meant, as Scrapyd's file has it. None: the project's default, the pinned version, or else the latest."""
    known = ready_versions(connection, project)
    if name is None:
        pinned = connection.scalar(select(projects.c.pinned_version).where(projects.c.name == project))
        return next((version for version in known if version.name == pinned), known[-1] if known else None)
    exact = [version for version in known if version.name == name]
    meant = exact or [version for version in known if means_version(name, version.name)]
    return meant[0] if len(meant) == 1 else None


def version_file(connection: Connection, project: str, name: str, suffix: str) -> str:
    """Return the file for an artefact of a version, below the folder of eggs. `suffix`: `.egg` or `.whl`.

    A version of the same name keeps its file, up to the ending. Versions of two names never share one.
    """
    current = versions.c.state.in_((VersionState.BUILDING, VersionState.READY))
    statement = (
        select(versions.c.name, versions.c.file)
        .join(projects, projects.c.id == versions.c.project_id)
        .where(projects.c.name == project, current, versions.c.digest != "")
    )
    names = {_without_suffix(row.file): row.name for row in connection.execute(statement)}
    for stem, other in names.items():
        if other == name:
            return f"{stem}{suffix}"
    taken = names.get(f"{project}/{file_stem(name, is_taken=False)}") is not None
    return f"{project}/{file_stem(name, is_taken=taken)}{suffix}"


def _without_suffix(file: str) -> str:
    return file[:-4]  # .egg and .whl are equally long


def add_version(
    connection: Connection, project: str, name: str, *, digest: str, file: str, **columns: Any
) -> int | None:
    """Add a version that is to be built, and return its number. None: `version_file` returns another file by now. Its
    environment is of the project's kind unless `columns` has another one."""
    locked_project(connection, project)
    if version_file(connection, project, name, file[-4:]) != file:
        return None
    columns = {"digest": digest, "file": file, **columns}
    return _insert(connection, project, name=name, state=VersionState.BUILDING.value, listing=WANTED, **columns)


def add_found_version(
    connection: Connection, project: str, name: str, *, digest: str, file: str, deployed_at: float
) -> int | None:
    """Add a version that Scrapyd has deployed, which jobs can run at once. None: its file is known already."""
    known = select(versions.c.id).where(
        versions.c.project_id == project_id(connection, project),
        versions.c.file == file,
        versions.c.state == VersionState.READY,
    )
    if connection.execute(known).first() is not None:
        return None
    columns = {"name": name, "state": VersionState.READY.value, "digest": digest, "file": file}
    return _insert(connection, project, **columns, deployed_at=deployed_at)


def set_local_projects(connection: Connection, modules: Mapping[str, str]) -> None:
    """Let these projects, by name, run from the Python path with this settings module, and no others.

    Their spiders are listed anew, because their code may have changed.
    """
    local = select(versions.c.id).where(versions.c.digest == "", versions.c.state == VersionState.READY)
    for version_id in connection.scalars(local).all():
        change_version(connection, version_id, VersionEvent.REMOVED)
    for project, module in modules.items():
        _insert(connection, project, name="", state=VersionState.READY.value, settings_module=module)


def _insert(connection: Connection, project: str, **columns: Any) -> int:
    number = project_id(connection, project)
    kind = connection.scalar(select(projects.c.environment).where(projects.c.id == number))
    defaults = {"digest": "", "file": "", "deployed_at": DatabaseNow(), "project_id": number, "environment": kind}
    return add_row(connection, versions, **{**defaults, **columns})


def want_listing(connection: Connection, version_id: int) -> None:
    """Request a listing of the spiders of a ready version, unless one is under way."""
    nothing = and_(versions.c.id == version_id, versions.c.listing == "")
    connection.execute(update(versions).where(nothing).values(listing=WANTED))


def repeat_listings(connection: Connection) -> None:
    """Request the listings that were under way again. Call this only while no node is at work."""
    connection.execute(update(versions).where(versions.c.listing != "").values(listing=WANTED))


def has_wanted_listing(connection: Connection) -> bool:
    """Return whether `take_listing` would find a version."""
    return connection.execute(select(versions.c.id).where(_is_wanted()).limit(1)).first() is not None


def _is_wanted() -> ColumnElement[bool]:
    after = versions.c.listing_after
    return and_(versions.c.listing == WANTED, or_(after.is_(None), after <= DatabaseNow()))


def take_listing(connection: Connection, incarnation: str) -> Version | None:
    """Assign one version whose spiders are to be listed to a node, and return it. None: there is none."""
    statement = (
        _with_project()
        .where(_is_wanted())
        .order_by(versions.c.id)
        .limit(1)
        .with_for_update(of=versions, skip_locked=True)  # two nodes that ask at one time get two versions
    )
    row = fetch_first(connection, Version, statement)
    if row is None:
        return None
    still_wanted = and_(versions.c.id == row.id, versions.c.listing == WANTED)
    taken = connection.execute(update(versions).where(still_wanted).values(listing=incarnation))
    return row if taken.rowcount else None


def unreceived_listings(connection: Connection, incarnation: str, has: Collection[int]) -> list[Version]:
    """Return the versions whose listing was assigned to a node's process that has not received it. `has`: numbers of
    the versions that the process reports."""
    missing = and_(versions.c.listing == incarnation, versions.c.id.not_in(has))
    return fetch(connection, Version, _with_project().where(missing).order_by(versions.c.id))


def _with_project() -> Select[Any]:
    return select(versions, projects.c.name.label("project")).join(projects, projects.c.id == versions.c.project_id)


def postpone_listing(connection: Connection, version_id: int, *, incarnation: str, reason: str) -> float | None:
    """Let any node list the spiders later, because this node could not. Return the seconds of the pause.

    None: the version was removed, another node lists it, or it has been tried for so long that it is broken now.
    """
    row = version_row(connection, version_id)
    age = float(connection.execute(select(DatabaseNow() - row.deployed_at)).scalar_one())
    if age > _TRY_SECONDS:
        record_listing(connection, version_id, incarnation=incarnation, spiders=[], fault=reason)
        return None
    pause = min(max(age / 2, _SHORTEST_PAUSE), _LONGEST_PAUSE)
    columns = {"listing": WANTED, "listing_after": DatabaseNow() + pause, "reason": reason}
    mine = and_(versions.c.id == version_id, versions.c.listing == incarnation)
    return pause if connection.execute(update(versions).where(mine).values(**columns)).rowcount else None


def record_listing(
    connection: Connection,
    version_id: int,
    *,
    incarnation: str,
    spiders: Sequence[str],
    fault: str,
    warnings: Sequence[str] = (),
) -> Version | None:
    """Record the spiders of a version, or why they could not be listed. Return the version; None: it was removed,
    or another node lists them.

    A version that is being built becomes ready, and replaces the earlier one of its name, or broken.
    """
    # Locked first: of two versions of one name that become ready at the same time, the second replaces the first.
    of_version = select(versions.c.project_id).where(versions.c.id == version_id).scalar_subquery()
    connection.execute(select(projects.c.id).where(projects.c.id == of_version).with_for_update(key_share=True))
    mine = versions.c.listing == incarnation
    if fault:
        change_version(connection, version_id, VersionEvent.BUILD_FAILED, mine, reason=fault)
    elif change_version(connection, version_id, VersionEvent.BUILT, mine, reason=""):
        _remove_replaced(connection, version_id)
    columns: dict[str, Any] = {"listing": "", "reason": fault}
    if not fault:
        columns |= {"spiders": list(spiders), "warnings": list(warnings) or None}
    if not connection.execute(update(versions).where(versions.c.id == version_id, mine).values(**columns)).rowcount:
        return None
    return version_row(connection, version_id)


def _remove_replaced(connection: Connection, version_id: int) -> None:
    this = version_row(connection, version_id)
    earlier = select(versions.c.id).where(
        versions.c.project_id == this.project_id,
        versions.c.state == VersionState.READY,
        versions.c.id != version_id,
        versions.c.digest != "",
        versions.c.name == this.name,
    )
    for number in connection.scalars(earlier).all():
        change_version(connection, number, VersionEvent.REMOVED)


def version_row(connection: Connection, version_id: int) -> Version:
    """Return a version, in whatever state."""
    return fetch_one(connection, Version, _with_project().where(versions.c.id == version_id))


def version_rows(
    connection: Connection, project: str, page: RowPage = ALL_ROWS, *, state: VersionState | None = None
) -> list[Version]:
    """Return a page of the versions of a project that are not removed, or that have this state; in the order of their
    deployment unless the page has the other one."""
    shown = versions.c.state != VersionState.DELETED if state is None else versions.c.state == state
    return fetch(connection, Version, page.of(_with_project().where(projects.c.name == project, shown), versions.c.id))


def spider_names(connection: Connection, project: str) -> list[str]:
    """Return the spiders of the default version and of the latest versions that jobs can run, sorted."""
    latest = version_rows(connection, project, RowPage(limit=_LISTED, is_latest_first=True), state=VersionState.READY)
    pinned = _with_project().where(
        projects.c.name == project, versions.c.state == VersionState.READY, versions.c.name == projects.c.pinned_version
    )
    rows = [*latest, *fetch(connection, Version, pinned)]
    return sorted({name for row in rows for name in row.spiders or ()})


def remove_version(connection: Connection, version_id: int) -> bool:
    """Remove a version. Return False if it was removed already."""
    return change_version(connection, version_id, VersionEvent.REMOVED) is not None


def ready_files(connection: Connection) -> list[VersionFile]:
    """Return every version that has an artefact and that jobs can run."""
    ready = and_(versions.c.state == VersionState.READY, versions.c.digest != "")
    columns = (versions.c.id, versions.c.digest, versions.c.file, versions.c.deployed_at)
    return fetch(connection, VersionFile, select(*columns).where(ready))


def building_digests(connection: Connection) -> set[str]:
    """Return the digests of the artefacts of versions that are being built."""
    return set(connection.scalars(select(versions.c.digest).where(versions.c.state == VersionState.BUILDING)))


def wanted_digests(connection: Connection) -> set[str]:
    """Return the digests of the artefacts that may still be needed: of versions that are being built, are ready, or
    have an active job."""
    current = versions.c.state.in_((VersionState.BUILDING, VersionState.READY))
    running = versions.c.id.in_(select(jobs.c.version_id).where(jobs.c.state.in_(ACTIVE)))
    return set(connection.scalars(select(versions.c.digest).where(or_(current, running))))


def artefact_file(connection: Connection, digest: str) -> str | None:
    """Return the file of the latest version with this artefact, for ArtefactStore.path. None: there is none."""
    statement = select(versions.c.file).where(versions.c.digest == digest).order_by(versions.c.id.desc())
    return connection.execute(statement).scalars().first()


def forget_versions(connection: Connection) -> None:
    """Delete old versions that jobs cannot run and to which no job refers, except the latest broken ones. Also delete
    old projects that own nothing (versions, jobs, schedules, variables and the like)."""
    old = DatabaseNow() - _FORGET_SECONDS
    newness = func.row_number().over(partition_by=(versions.c.project_id, versions.c.state), order_by=-versions.c.id)
    ranked = select(versions.c.id, versions.c.state, newness.label("newness")).subquery()
    outdated = select(ranked.c.id).where(
        or_(
            ranked.c.state == VersionState.DELETED,
            and_(ranked.c.state == VersionState.BROKEN, ranked.c.newness > _BROKEN_KEPT),
        )
    )
    unused = and_(
        versions.c.id.in_(outdated),
        versions.c.listing == "",
        versions.c.deployed_at < old,
        ~select(jobs.c.id).where(jobs.c.version_id == versions.c.id).exists(),
    )
    gone = connection.scalars(select(versions.c.id).where(unused)).all()
    connection.execute(delete(environments).where(environments.c.version_id.in_(gone)))
    connection.execute(delete(versions).where(versions.c.id.in_(gone)))
    empty = and_(
        projects.c.created_at < old,
        ~select(versions.c.id).where(versions.c.project_id == projects.c.id).exists(),
        ~select(jobs.c.id).where(jobs.c.project_id == projects.c.id).exists(),
        ~select(schedules.c.id).where(schedules.c.project_id == projects.c.id).exists(),
        ~select(variables.c.id).where(variables.c.project_id == projects.c.id).exists(),
        ~select(webhooks.c.id).where(webhooks.c.project_id == projects.c.id).exists(),
        ~select(job_groups.c.id).where(job_groups.c.project_id == projects.c.id).exists(),
        ~select(inputs.c.id).where(inputs.c.project_id == projects.c.id).exists(),
        ~select(spider_policies.c.spider).where(spider_policies.c.project_id == projects.c.id).exists(),
    )
    connection.execute(delete(projects).where(empty))
