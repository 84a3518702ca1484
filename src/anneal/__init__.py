"""anneal: search by example in a folder of images, taught by one-bit answers.

Import the module you need (``from anneal import archive, strategies``): nothing heavy is loaded
before it is used, so that the command line answers at once.
"""

__version__ = "0.1.0"
