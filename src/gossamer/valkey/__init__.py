"""Asynchronous client for Valkey and Redis (one server or a cluster), and the embedded server of a data directory."""
