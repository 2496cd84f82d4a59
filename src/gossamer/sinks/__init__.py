"""Where records go: JSON Lines, WARC, Parquet, standard output, and remote places."""
