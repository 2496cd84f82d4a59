"""Write the pages of docs/reference, and the completion scripts, from the code: `python -m tools.reference`."""

from pathlib import Path

from tools.reference.completion import completion_scripts
from tools.reference.pages import all_pages

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference"
SCRIPTS = ROOT / "src" / "gossamer" / "cli" / "completion"

for name, text in all_pages().items():
    (FOLDER / name).write_text(text)
for name, text in completion_scripts().items():
    (SCRIPTS / name).write_text(text)
