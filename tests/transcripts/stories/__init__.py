"""All transcripts, by what they are about."""

from __future__ import annotations

from tests.transcripts.driver import Transcript
from tests.transcripts.stories.aligned import ALIGNED
from tests.transcripts.stories.evictors import EVICTORS
from tests.transcripts.stories.global_windows import GLOBAL
from tests.transcripts.stories.processing_time import PROCESSING_TIME
from tests.transcripts.stories.sessions import SESSIONS
from tests.transcripts.stories.triggers import TRIGGERS

STORIES: list[Transcript] = [*ALIGNED, *SESSIONS, *GLOBAL, *TRIGGERS, *EVICTORS, *PROCESSING_TIME]
