"""Outputs for records: JSON Lines, WARC, Parquet, standard output, remote files, and the bus."""
