"""Sessions of a crawl: cookies that are kept, logins, and the accounts of a site (ADR 26)."""
