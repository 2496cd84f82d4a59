"""Immutable data of all packages, and their one common name."""

DATA_DIR = ".gossamer"
"""Default of the setting data_dir. It is here because `settings` loads more than some of its users need. Must not
change: earlier commands have left their crawls there."""
