"""Storage of the platform's artefacts, logs and items: a folder, or any address that fsspec reaches."""
