"""Upper bound for immediate actions, on a machine that is busy with other tests."""

# Seconds. A bounded action takes clearly longer if it is not immediate.
AT_ONCE = 4.0
