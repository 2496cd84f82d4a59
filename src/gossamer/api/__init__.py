"""The REST API: Gossamer's own under /v1, and Scrapy Cluster's at /, /feed and /poll."""
