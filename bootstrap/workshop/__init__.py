"""Workshops: each attendee has a place, an instance in its own namespace."""
