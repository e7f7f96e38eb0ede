"""Imported by the process from which these tests fork: the program, all of it, and nothing of it looked at again."""

from tests.warm import load

load()
