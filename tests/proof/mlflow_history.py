"""Writes the whole history of run 2 on the tracking server 1, by MLflow's own client: key -> [step, time in ms, value]."""

import json
import sys

import mlflow

client = mlflow.MlflowClient(sys.argv[1])
keys = client.get_run(sys.argv[2]).data.metrics
found = {key: [[of.step, of.timestamp, of.value] for of in client.get_metric_history(sys.argv[2], key)] for key in keys}
sys.stdout.write(json.dumps(found))
