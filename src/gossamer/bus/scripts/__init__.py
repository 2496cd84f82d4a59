"""The scripts of the bus on Valkey Streams, a command each."""
