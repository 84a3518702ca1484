"""The guard's tests are in test_heldout.py. This file can be deleted."""
