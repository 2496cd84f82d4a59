"""The order of commits: records durable first, then the outlinks, then the parents."""
