"""A node: takes jobs, runs each attempt under a shim, and reports how it ended."""
