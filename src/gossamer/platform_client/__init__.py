"""Client library: finds a server, builds a project's artefact, and calls the platform's API or that of Scrapyd."""
