"""Platform: deploy, schedule and run Scrapy projects. It succeeds Scrapyd; the crawl frontier is not part of it."""
