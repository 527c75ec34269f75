"""Sources of programs, images, packages and extensions."""
