from __future__ import annotations

from tests.official_clients.environment import CLIENTS, require


def test_the_clients_of_other_servers_are_installed() -> None:
    """If they are not, this test alone is skipped, and the others of this folder are deselected (conftest.py)."""
    require(CLIENTS)
