"""`agent top`: this machine on a full screen."""
