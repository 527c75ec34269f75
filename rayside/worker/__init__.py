"""Debugger in each process of a job; requires only Python's standard library, Ray and debugpy."""
