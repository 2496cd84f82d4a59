"""Background services: each is a Role with a `run_once` that is repeated, and any number of copies may run."""
