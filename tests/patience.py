"""How long tests wait for what real processes do."""

# Seconds. Only a broken test waits so long, on whatever machine and beside whatever else runs there.
PATIENCE = 120.0
