"""
The one table of what is wrong, rules.json: verdicts, `chipwatch why`, incidents and alarms read their columns of it.

`signals`: metrics, each with the condition that its rules share: the value, or of a counter the increase in an hour, is
above `limit` (0 if there is none), or with `below` below it.

- `verdict`: rules, each with the dimensions of its series, the level of the verdict ("" for none), the fault in words,
  what to do, and what differs from the signal: another condition, the cause of an incident, an exception.
- `alarms`: alarms by name. A condition like `max for 2 min` has the signal's limit; one like `max above 95 for 10 min`
  has its own. `but`: dimensions and values of series to exclude. `per`: `series`, `host` or `fleet` has one state.

`figures`: figures of a job, each with the least value that counts, a text and its source. `why`: causes, each with the
figures that a job must have (`when`; the first says what is lost) and must not have (`unless`), and what to do.

`do`: what to do, by a short name, where several rules say the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

RULES: Final = json.loads(Path(__file__).with_suffix(".json").read_bytes())
