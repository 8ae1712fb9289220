"""Settings for the property tests of this folder: the machine's speed decides nothing."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")
