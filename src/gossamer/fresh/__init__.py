"""Pages of crawls that are kept up to date: their index, their changes, and when they are fetched again (ADR 25)."""
