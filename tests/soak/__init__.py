"""A long crawl whose memory is watched: `python -m tests.soak`."""
