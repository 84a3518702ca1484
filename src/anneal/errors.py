"""Errors for people. Every message is a sentence that says what to do; the command line prints only that."""

from anneal.names import printable


class AnnealError(Exception):
    """A problem that a person can fix. Never raised for a bug in anneal. Its text is UTF-8, whatever names it
    holds."""

    exit_code = 1  # of the command line: the request was right but could not be carried out

    def __str__(self) -> str:
        return printable(super().__str__())


class UsageError(AnnealError):
    """The request is wrong: an unknown name, a number out of range, too few images."""

    exit_code = 2


class ArchiveError(AnnealError):
    """Images are missing, unreadable or changed."""


class BackboneError(AnnealError):
    """A pretrained network cannot be loaded."""


class CampaignError(AnnealError):
    """A problem with a campaign's folder or its file."""


class DiskError(AnnealError):
    """The disk is full or refuses to be written."""
