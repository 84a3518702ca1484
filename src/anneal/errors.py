"""What can go wrong for a person: every message is a sentence that says what to do.

The command line prints the message alone and leaves with ``exit_code``: 2 where the request was
wrong, 1 where it was right and could not be carried out.
"""


class AnnealError(Exception):
    """Anything a person can mend; never raised for a bug of ours."""

    exit_code = 1


class UsageError(AnnealError):
    """The request itself is wrong: an unknown name, a number out of range, too little to work on."""

    exit_code = 2


class ArchiveError(AnnealError):
    """The images: missing, unreadable, changed."""


class BackboneError(AnnealError):
    """A pretrained network that cannot be had."""


class CampaignError(AnnealError):
    """The campaign's folder or its file."""


class DiskError(AnnealError):
    """The disk is full or refuses to be written."""
