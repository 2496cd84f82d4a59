"""Runs Alembic's migrations on the connection that `DatabaseSchema.migrate` passes. Alembic loads this file by its
name."""

from alembic import context

_options = context.config.attributes
context.configure(
    connection=_options["connection"],
    target_metadata=_options["metadata"],
    version_table=_options["version_table"],
    render_as_batch=True,  # SQLite cannot change most of a table in place: a migration copies it
)
context.run_migrations()
