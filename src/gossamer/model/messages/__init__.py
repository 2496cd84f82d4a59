"""Messages on the wire: their JSON Schemas, the requests read from them, and the answers written. Pure."""
