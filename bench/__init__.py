"""Measurements and the models they run on; no part of the installed product."""
