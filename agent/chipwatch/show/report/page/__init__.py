"""The page of `chipwatch report`: one HTML file about recordings, which needs no network."""
