"""The messages on the wire: JSON Schemas, and the requests and answers they describe. Pure."""
