"""Gives each attendee of a workshop a cluster of their own: a place is an instance in its own namespace."""
