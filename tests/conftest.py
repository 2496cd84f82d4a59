"""What all tests share. Being here, this file also puts `tests/` on the import path, so `servers` can be imported."""
