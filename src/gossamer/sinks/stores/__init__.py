"""Outputs in databases and search servers (stores): PostgreSQL, MySQL and MariaDB, OpenSearch and Elasticsearch."""
