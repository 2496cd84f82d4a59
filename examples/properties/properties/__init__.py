"""A Scrapy project that crawls the estate agent's site of the fake web."""
