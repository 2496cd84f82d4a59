"""Words for the estate agent's properties: kinds, traits, places and addresses."""

KINDS = ("studio", "one bed flat", "two bed flat", "house", "loft", "double room", "mews house", "houseboat")
TRAITS = ("bright", "quiet", "newly painted", "spacious", "cosy", "furnished", "rooftop", "garden")
PLACES = ("the angel", "the canal", "the park", "the station", "the market", "the river", "the museum")
PRICE_PERCENT = {
    "studio": 70,
    "double room": 60,
    "house": 130,
    "mews house": 150,
    "houseboat": 85,
    "rooftop": 125,
    "cosy": 85,
    "the angel": 120,
    "the park": 110,
    "the station": 90,
}
"""Price of a property with these words in its title, in per cent of its price without them. Other words change no
price. So a question that analytics ask has an answer: which words go with a higher or lower price."""
_AREAS = ("Islington", "Camden", "Hackney", "Brixton", "Peckham", "Ealing", "Greenwich")
ADDRESSES = tuple(f"{area}, London {side}" for area in _AREAS for side in ("N1", "E2", "S3", "W4", "C5"))
"""35 of them, so that a geocoder's cache has something to do."""
