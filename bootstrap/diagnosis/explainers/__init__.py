"""Turns evidence into findings: each explainer looks at one thing, and gathers nothing."""
