"""Short versions of the attacks in ``torture``: ``make torture`` runs the long ones."""

from __future__ import annotations

import pytest

from served import Site
from torture import copies, kills

pytestmark = pytest.mark.xdist_group("processes")


def test_a_killed_server_loses_and_doubles_nothing() -> None:
    assert "8 kills" in kills.run(8)


def test_a_copy_of_a_folder_in_use_opens_and_replays() -> None:
    assert "4 copies open" in copies.run(4)


def test_no_request_of_the_schema_s_kinds_gives_a_5xx(site: Site) -> None:
    pytest.importorskip("schemathesis", reason="the extra torture makes requests from the schema")
    from torture import schema

    assert "0 × 5xx" in schema.fuzz(site, 60)
