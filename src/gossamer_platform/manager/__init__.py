"""The manager: what clients may ask for, on one database, one store of artefacts, and any number of nodes."""
