"""What several sinks share: rules and prices of CloudWatch, which the embedded metric format also has, and layouts."""
