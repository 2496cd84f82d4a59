"""Write the pages of docs/reference from the code: `python -m tools.reference`."""

from pathlib import Path

from tools.reference.pages import all_pages

FOLDER = Path(__file__).parents[2] / "docs" / "reference"

for name, text in all_pages().items():
    (FOLDER / name).write_text(text)
