"""For projects that come from Scrapy Cluster: spiders whose requests arrive as crawl messages, and whose pages leave on
the bus. docs/howto/from-scrapy-cluster.md."""
