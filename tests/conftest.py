"""What all tests share."""

from hypothesis import settings

# How long an example takes says something of the machine, not of the code; tests/bench measures speed.
settings.register_profile("project", deadline=None)
settings.load_profile("project")
