"""Valkey and Redis: the client, the private server, scripts as they travel, and the border that translates errors."""
