"""Telemetry of a process: log events, logging setup, troubles, counters and Prometheus metrics."""
