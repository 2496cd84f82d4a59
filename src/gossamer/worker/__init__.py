"""The fast lane: lease, fetch, extract, commit. One process, one event loop."""
