"""Reports: what a crawl found, from its records, as one HTML page and as CSV files."""
