"""`agent verdict`: whether this machine is fit for work, and what to do if it is not."""
