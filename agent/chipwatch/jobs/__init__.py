"""
Jobs on accelerators: which job holds which device, how its time was spent, and why it was idle.

The processor `jobs` keeps accounts of device time. The package `verdict` judges whether the machine is fit for work.
"""
