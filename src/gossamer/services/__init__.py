"""The long-lived roles beside the workers, one a file: each a `run_once` and a loop, several copies safe."""
