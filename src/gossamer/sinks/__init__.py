"""Outputs for records: JSON Lines, CSV, JSON, SQLite, WARC, Parquet, standard output, remote files, and the bus."""
