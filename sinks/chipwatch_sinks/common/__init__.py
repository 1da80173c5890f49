"""
Code that several sinks share: CloudWatch's rules and prices, AWS and Google credentials, layouts of dashboards.

Code that only one sink needs stays in the sink's folder.
"""
