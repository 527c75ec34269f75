"""Workshops: each attendee has a place, an instance in a separate namespace."""
