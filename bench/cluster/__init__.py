"""Model of a large cluster: a discrete-event simulation of workers and shards, with service times measured here.

`python -m bench.cluster measure|simulate|check|plot`; docs/explanation/scale.md explains the results.
"""
