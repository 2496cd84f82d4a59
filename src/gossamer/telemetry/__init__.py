"""What a running Gossamer says of itself: names of events, counters, troubles, and the logging setup."""
