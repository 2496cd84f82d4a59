"""Builds the running parts from settings. Only this package and the commands read settings; all others get values."""

WORKER_PROCESS = "worker-process"
"""Command line of a worker process that another Gossamer process starts. Internal: it has no options and no help. Must
be no command."""
