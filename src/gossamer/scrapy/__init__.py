"""The Scrapy lane: the same frontier behind the scheduler of an unmodified Scrapy project (extra `scrapy`)."""
