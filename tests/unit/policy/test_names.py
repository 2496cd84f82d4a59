"""What pools, spiders and egresses may be called."""

import pytest

from gossamer.model.request import name_error


@pytest.mark.parametrize("name", ["", "link", "a b", "straße", "a:b{c}", "192.0.2.1"])
def test_most_names_are_fine(name: str) -> None:
    assert name_error(name) == ""


@pytest.mark.parametrize("name", ["a|b", "a,b", "a\nb"])
def test_what_parts_names_in_keys_is_refused_with_the_name(name: str) -> None:
    assert repr(name) in name_error(name)
