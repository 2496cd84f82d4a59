"""The compiled reading of links held against the reference in Python, on generated and on real pages."""
