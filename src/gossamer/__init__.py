"""Gossamer: one frontier that any number of crawlers share."""

__version__ = "0.1.0"
