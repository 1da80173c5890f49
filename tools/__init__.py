"""
Makes the files that are generated from the program: pages, listings, dashboards, installers, the chart's schema, pictures.

A developer's programs, not shipped: the program imports nothing from here. Tests import them and compare.
"""
