"""Commands that serve: Scrapyd's stand-in, a manager, and a node, each in one process."""
