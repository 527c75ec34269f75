"""Identity of Ray clusters that this machine has a record of, and connections to them."""
