"""Scrapy Cloud's interface, for its clients shub and scrapinghub."""
