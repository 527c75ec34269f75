"""Carries an editor's connection to a debug relay elsewhere, over ways that break and come back."""
