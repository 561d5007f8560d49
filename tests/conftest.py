"""Settings every test shares."""

import os

from hypothesis import settings

# No deadline: the first example of a test pays for polars warming up. On CI the examples are the
# same in every run, so that a change is judged by what it changes; elsewhere they are new ones.
settings.register_profile("shared", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("shared")
