"""The README is what a newcomer reads in two minutes."""

from pathlib import Path

README = (Path(__file__).parents[3] / "README.md").read_text()


def test_it_has_less_than_200_lines_one_picture_and_the_command_that_shows_everything() -> None:
    assert len(README.splitlines()) < 200
    assert README.count("![") == 1
    first_block = README.split("```")[1]
    assert "gossamer demo\n" in first_block
    assert len(first_block.strip().splitlines()) <= 4
