"""Scrapy spiders for a Gossamer service, for projects that come from Scrapy Cluster.

Their requests arrive as crawl messages, and their pages leave on the bus. See docs/howto/from-scrapy-cluster.md.
"""
