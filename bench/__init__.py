"""Side-by-side measurements: whole crawls against other crawlers on one local site, and the frontier by itself.

`python -m bench` prints both tables; see README.md.
"""
