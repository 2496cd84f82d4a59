"""Words for the estate agent's properties: kinds, traits, places and addresses."""

KINDS = ("studio", "one bed flat", "two bed flat", "house", "loft", "double room", "mews house", "houseboat")
TRAITS = ("bright", "quiet", "newly painted", "spacious", "cosy", "furnished", "rooftop", "garden")
PLACES = ("the angel", "the canal", "the park", "the station", "the market", "the river", "the museum")
_AREAS = ("Islington", "Camden", "Hackney", "Brixton", "Peckham", "Ealing", "Greenwich")
ADDRESSES = tuple(f"{area}, London {side}" for area in _AREAS for side in ("N1", "E2", "S3", "W4", "C5"))
"""35 of them, so that a geocoder's cache has something to do."""
