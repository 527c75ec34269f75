"""Says how soon tests expect what is done at once, on a machine that is busy with other tests."""

# Seconds. What has this bound takes clearly longer where it is not done at once.
AT_ONCE = 4.0
