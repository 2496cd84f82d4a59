"""The counters' scripts, a command each."""
