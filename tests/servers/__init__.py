"""Real servers for the tests: each is a process or a thread on a loopback socket that is already listening."""
