"""Runs MLflow's system metrics into the folder of argument 1 for argument 2 seconds; writes their last values."""

import json
import sys
import time

import mlflow

mlflow.set_tracking_uri(f"file:{sys.argv[1]}/mlruns")
mlflow.set_system_metrics_sampling_interval(1)
mlflow.set_system_metrics_samples_before_logging(1)
with mlflow.start_run(log_system_metrics=True) as run:
    time.sleep(float(sys.argv[2]))
sys.stdout.write(json.dumps(mlflow.get_run(run.info.run_id).data.metrics))
