"""A frontier that is lost in mid-crawl is filled again from the records of the crawl."""
