"""Programs for working on Gossamer itself. They are not part of the package."""
