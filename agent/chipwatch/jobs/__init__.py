"""
Whose each device is, what its hours were worth, why it waits, and whether the machine is fit for work.

The processor `jobs` keeps the ledger of device time and the causes; `verdict` judges the machine by one table of rules.
"""
