"""The errors that a user can cause."""


class TwinRankError(Exception):
    """Base class of the library's own errors."""


class InputError(TwinRankError, ValueError):
    """What was given can't be used; the message says what, where, and what to do."""
