"""A service that keeps a site up to date, while its processes and servers are killed."""
