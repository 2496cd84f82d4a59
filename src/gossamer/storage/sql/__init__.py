"""SQL databases, SQLite and PostgreSQL: connections, typed rows, migrations. Needs SQLAlchemy, of an extra."""
