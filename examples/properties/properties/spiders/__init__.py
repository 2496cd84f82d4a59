"""One module for each way of crawling the site."""
