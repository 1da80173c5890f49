"""The page of `agent report`: one HTML file about recordings, which asks the network for nothing."""
