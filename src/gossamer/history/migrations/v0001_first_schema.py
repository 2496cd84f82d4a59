"""First schema. It has no step: a new database is made from the tables, and later migrations go on from here."""

revision = "0001"
down_revision = None
