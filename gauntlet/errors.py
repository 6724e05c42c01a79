"""The one exception that people are meant to read."""


class GauntletError(ValueError):
    """Bad input or a failed expectation, as one clear sentence: what is wrong, where, what would be right."""
