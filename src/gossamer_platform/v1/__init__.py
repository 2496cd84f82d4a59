"""The platform's own API under /v1: projects, versions, jobs, tokens, for programs and people."""
