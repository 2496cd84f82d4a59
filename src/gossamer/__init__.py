"""Gossamer, a crawling cluster: any number of crawlers share one frontier of URLs."""

__version__ = "0.1.0"
