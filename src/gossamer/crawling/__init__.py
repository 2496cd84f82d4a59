"""Crawls from a program: what `gossamer crawl` runs, without a terminal."""
