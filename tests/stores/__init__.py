"""Stores under fire: a crawl writes items at full speed while its server and its process are killed."""
