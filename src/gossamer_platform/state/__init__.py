"""The platform's state in SQL: tables, the database, and the statements on them."""
