"""A training script: starts a run in the experiment `proof`, prints its id, and works for argument 1 seconds."""

import sys
import time

import mlflow

mlflow.set_experiment("proof")
with mlflow.start_run() as run:
    sys.stdout.write(f"{run.info.run_id}\n")
    sys.stdout.flush()
    end = time.monotonic() + float(sys.argv[1])
    step = 0
    while time.monotonic() < end:
        mlflow.log_metric("loss", 1 / (step + 1), step=step)
        time.sleep(0.5)
        step += 1
