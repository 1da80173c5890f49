"""What a running agent tells about itself."""
