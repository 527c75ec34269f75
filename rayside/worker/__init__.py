"""Opens a debugger in each process of a job; needs nothing but Python's own library, Ray and debugpy."""
