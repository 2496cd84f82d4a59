"""Storage of files: whole files in folders, and addresses that fsspec reaches. Below crawler and platform."""
