"""Who this machine is."""
