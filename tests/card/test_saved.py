"""Cards of the user's own: a file that cannot be read is told by its name, as is a name that no file has."""

import pytest

import tilescope as ts
from tilescope.card import saved
from tilescope.cli import run


def test_a_spoiled_file_of_a_card_is_told(cards, capsys):
    cards.mkdir()
    for content in ("{", "[]", "{}", '{"tma": {"loads": 3}}'):
        (cards / "mine.json").write_text(content)
        assert run(["plan", "128x64", "bf16", "--card", "mine"]) == 2
        assert "saved-card" in capsys.readouterr().err
    assert run(["plan", "128x64", "bf16", "--card", "minne"]) == 2
    assert "mine" in capsys.readouterr().err


def test_a_user_without_a_home_directory_has_no_cards(monkeypatch):
    def find_no_home(_name):
        raise RuntimeError("could not determine the home directory")

    monkeypatch.setattr("platformdirs.user_config_path", find_no_home)
    assert saved.saved_names() == ()
    with pytest.raises(ts.DeviceError, match="set HOME"):
        saved.cards_folder()
