"""Scrapyd's interface: its endpoints, pages, configuration and folders, for every client that works with Scrapyd."""
