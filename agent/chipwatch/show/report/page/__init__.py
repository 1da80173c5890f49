"""The page of `chipwatch report`: one HTML file about recordings, which asks the network for nothing."""
