"""The ledger's API under requests made from its own document."""

from __future__ import annotations

from collections.abc import Callable

from ledger.api.app import create_app
from ledger.explorer.app import create_pages
from ledger.store.database import Database
from ledger.store.follower import Follower
from protocol.chain.reading.client import Chain
from tests.conftest import serving
from tests.ledger.conftest import IN_BOTH
from tests.ledger.spoiling import spoil


@IN_BOTH
def test_no_request_is_answered_with_a_server_error(synced: Database, chain: Chain, ask: Callable[..., None]) -> None:
    with serving(create_app(chain, synced, Follower(chain, synced), actions=True)) as url:
        ask("ledger", url)


def test_no_request_is_answered_with_a_page_that_is_unsafe_to_show(
    synced: Database, chain: Chain, ask: Callable[..., None]
) -> None:
    from tests.openapi.asking import harvest  # takes a second, which others need not wait

    app = create_app(chain, synced, Follower(chain, synced))
    with serving(app) as url:
        known = harvest(url)
        spoil(synced)
        ask("pages", url, known, None, create_pages(app.state.service).openapi())
