"""The command line: one command a file. Parse, call, print."""

WORKER_PROCESS = "worker-process"
"""The command of the processes behind --processes, for us alone: it takes no options and shows no help."""
