"""Settings of the unit tests."""

from hypothesis import settings

settings.register_profile("any machine", deadline=None)  # a busy machine is no fault of the code
settings.load_profile("any machine")
