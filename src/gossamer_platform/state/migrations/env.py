"""Runs Alembic's migrations on the connection that `database.migrate` passes. Alembic loads this file by its name."""

from alembic import context

_options = context.config.attributes
# SQLite cannot change most of a table in place: render_as_batch makes a migration copy it.
context.configure(connection=_options["connection"], target_metadata=_options["metadata"], render_as_batch=True)
context.run_migrations()
