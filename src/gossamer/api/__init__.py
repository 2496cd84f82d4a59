"""The REST service: one file a resource. It asks `control`, the frontier and the bus; it decides nothing itself."""
