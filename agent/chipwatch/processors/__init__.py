"""
Processors: one folder for each, which derives datapoints from the datapoints of several collectors.

They read no files and import no collector: all that they need comes as datapoints and facts.
"""
