"""Outputs in databases and search servers (stores): PostgreSQL, MySQL, MariaDB, OpenSearch, Elasticsearch, Redis."""
