"""Schema of the last development version. It has no step: a new database is made from the tables, and later migrations
go on from here."""

revision = "0014"
down_revision = None
