"""The command line: one command a file. Parse, call, print."""
