"""The command line: parses options, runs a command, prints its result. One group of commands a module."""
