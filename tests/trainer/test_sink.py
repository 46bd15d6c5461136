"""Figures given to a package outside: the trainer starts only where it is there."""

from __future__ import annotations

import pytest

from protocol.errors import Misconfigured
from trainer.sink import Sink


def test_a_sink_that_is_not_installed_is_named_with_how_to_install_it() -> None:
    with pytest.raises(Misconfigured, match="metrics_sink trackio is not installed: pip install trackio"):
        Sink.open("trackio", "run-1", {})
