"""The commands of the command line, and their options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from chipwatch.commands.arguments import pair, price, seconds, whole, words
from chipwatch.verdict.callers import CALLERS

COMMANDS: Final = {
    "run": "collect and send until stopped (the default); `-- COMMAND` runs a command and prints a summary of it",
    "check": "test each collector and sink, and print what is missing",
    "plan": "estimate what would be sent, and what it costs",
    "dashboard": "print a cloud's dashboard, or alarms, for what would be sent, as JSON",
    "top": "show this machine, a recording, or many machines, on a full screen",
    "fleet": "print a line for each of many machines, once; without HOST for this one",
    "health": "check the running agent: exits with 0 (healthy) or 1",
    "record": "record this machine, or a command, to a file",
    "incidents": "list the incidents that the agent recorded",
    "report": "write a page about recordings: charts, losses, events, cost; one file for any browser",
    "export": "print a recording as JSON lines, CSV or OpenMetrics, or write it as Parquet",
    "status": "print what the running agent collects and delivers",
    "verdict": "print whether this machine is fit for work, why not, and what to do",
    "jobs": "print which job holds which accelerator, and what it did with it, by the running agent",
    "why": "print why a job is slow, what that costs and what to do, by the running agent",
    "list": "print the metrics of all collectors",
    "sample-config": "print a configuration file with every option",
    "completion": "print a script with which a shell completes commands and options",
    "version": "print the version (also -V, --version)",
    "help": "print this text, or the options of a command",
}
Row = tuple[str, str, str] | tuple[str, str, str, Mapping[str, Any]]
"""Flags, the value (none: a switch; NAME,...: a list, which may be repeated), help, other arguments of argparse."""
EVERYDAY: Final[Sequence[Row]] = (
    ("--sink", "NAME,...", "where to send (stdout; none with -- COMMAND)"),
    ("--collector", "NAME,...", "what to read: collectors, or the families host and gpu (all that find something)"),
    ("--no-collector", "NAME,...", "what not to read"),
    (
        "-d --common-dims",
        "NAME,...",
        "dimensions of this machine: instance_id,instance_type; `chipwatch help run` has all",
    ),
    ("--dim", "K=V", "another dimension; may be repeated", {"action": "append"}),
    ("--level", "LEVEL", "which metrics: basic, detailed or all (basic)"),
    ("--interval", "TIME", "time between readings, such as 5, 500ms, 5s or 1m (5s)"),
    ("--window", "TIME", "time whose readings make one point (the sink's)"),
    ("-r --region", "REGION", "cloud region (the environment's, else the instance's own)"),
    ("--format", "FORM", "format of standard output: json, table or emf"),
    ("--config", "FILE", "configuration file, TOML"),
)
BESIDE: Final[Sequence[Row]] = (
    ("--summary", "FILE", "keep a summary of what process --pid has used in FILE, renewed with each reading",
     {"type": Path}),
    ("--parent", "PID", "end when process PID, which started this one, has ended", {"type": whole(1 << 31)}),
)  # fmt: skip
RUN: Final[Sequence[Row]] = (
    ("--once", "", "read everything once, then end"),
    ("--duration", "TIME", "end after this time", {"type": seconds}),
    ("--record", "FILE", "record the whole run to this file", {"type": Path}),
    ("-v --verbose", "", "say in a script, too, what goes well: as --log-level info",
     {"action": "store_const", "const": "info", "dest": "log_level"}),
    *BESIDE,
)  # fmt: skip
PLACES: Final[Sequence[Row]] = tuple(
    (f"--{name}", "DIR", f"where the host's /{place} is mounted")
    for name, place in (("proc", "proc"), ("sys", "sys"), ("root", ""))
)
OPTIONS: Final[Sequence[Row]] = (
    *EVERYDAY,
    ("--processor", "NAME,...", "what to derive (all)"),
    ("--no-processor", "NAME,...", "what not to derive"),
    ("--flush", "TIME", "time between deliveries (the sink's)"),
    ("-n --namespace", "NAME", "CloudWatch namespace"),
    ("--project", "NAME", "Google Cloud project (the environment's, else the machine's own)"),
    ("--endpoint-url", "URL", "another address of the service (the region's own)"),
    ("--high-resolution-metrics", "", "one point a second"),
    ("--stdin", "NAME", "read this collector's records from standard input: neuron"),
    ("--pid", "N", "read process N and its descendants"),
    (
        "--names",
        "PROFILE",
        "names: native, wandb, wandb-docs, mlflow, cwagent, neuron-prometheus, dcgm, dcgm4.6, node or otel",
    ),
    ("--spool", "DIR", "folder for points that are not sent yet"),
    ("--drop-other-destinations", "", "drop what the spool holds for another destination"),
    ("--recorder", "BOOL", "keep the last minutes on disk: true or false (true)"),
    ("--health", "[HOST:]PORT", "serve /healthz and /readyz (not served)"),
    *PLACES,
    ("--quiet", "", "print no summary when the command after -- has ended"),
    ("--log-level", "LEVEL", "debug, info, warning or error (info; warning in scripts)"),
    ("--log-format", "FORM", "form of the log: text or json (text)"),
)
"""Options of the configuration: `load` converts them, and names them in its errors."""
MACHINES: Final[Sequence[Row]] = (
    ("--for", "NAME,...", "for machines with these: host, gpu, names of collectors, or all (this machine)",
     {"dest": "families", "type": words, "action": "store"}),
    ("--devices", "N", "accelerators of such a machine (8)", {"type": whole(86_400)}),
)  # fmt: skip
AGENT: Final[Sequence[Row]] = (
    ("--spool", "DIR", "the agent's own --spool"),
    ("--config", "FILE", "the agent's own configuration file"),
)
"""Options that find the running agent."""
FLEET: Final[Sequence[Row]] = (
    ("hosts", "HOST", "node-7, gpu[001-064], http://HOST:PORT, ssh://HOST, @FILE, slurm:PARTITION_OR_JOB, k8s:LABEL",
     {"nargs": "*", "default": []}),
    ("--prometheus", "URL", "ask this store, with the API of Prometheus, instead of the nodes"),
    ("--ssh", "", "ask names without http:// by the system's ssh"),
    ("--remote", "PATH", "the program at the other end of ssh (chipwatch)"),
    ("--token-file", "FILE", "send the bearer token in this file; by https only", {"type": Path}),
    ("--password-file", "FILE", "send the USER:PASSWORD in this file; by https only", {"type": Path}),
    ("--ca-file", "FILE", "trust the certificates in this file (the system's)", {"type": Path}),
    ("--job", "NAME", "only nodes with this job"),
    ("--user", "NAME", "only nodes with a job of this user"),
    ("--verdict", "WORD", "only nodes that are fit, degraded, not-fit, unknown, silent or not-believed",
     {"choices": ("fit", "degraded", "not-fit", "unknown", "silent", "not-believed")}),
)  # fmt: skip
"""Options that say which nodes are shown, and how they are asked."""
OWN: Final[Mapping[str, Sequence[Row]]] = {
    "run": RUN,
    "check": (
        ("--send", "", "send one test point, agent.check, through each sink"),
        ("--bundle", "FILE", "pack a report for a ticket, without secrets"),
        ("--capture", "FILE", "write raw readings of accelerators, for support of a new machine"),
        ("-v --verbose", "", "say why each collector is absent"),
    ),
    "plan": (
        *MACHINES,
        ("--hosts", "N", "hosts like this one (1)", {"type": whole(1_000_000), "default": 1}),
        ("--price-per-metric", "USD", "dollars a month (the list's, in tiers)", {"type": price, "default": None}),
        ("--price-per-1000-requests", "USD", "dollars (the list's)", {"type": price, "default": None}),
        ("--price-per-gb", "USD", "dollars for a GB of points, where these are charged (the list's)",
         {"type": price, "default": None}),
        ("--free-tier", "", "subtract an account's free tier", {"default": False}),
        ("--format", "FORM", "text or json; emf: text, about standard output in CloudWatch's embedded metric format",
         {"choices": ("text", "json", "emf")}),
    ),
    "dashboard": (
        ("--cloud", "SINK", "sink whose dashboard is printed; grafana: what is scraped", {"required": True}),
        ("--board", "NAME", "fleet, node, gpu, jobs, fabric or agent (all that is sent)"),
        ("--alarms", "", "print the alarms instead"),
        ("--records", "", "print rules of Prometheus that record the groups of --board instead"),
        ("--runbooks", "URL", "where the pages about alarms are (docs/runbooks)"),
        *MACHINES,
        ("--prefix", "NAME", "name of the dashboard, and start of the names of alarms (chipwatch)"),
        ("--period", "S", "seconds of one dot (the sink's window, at least 60)", {"type": whole(86_400)}),
        ("--dims-as", "TEXT", "write this for the common dimensions: a variable of a template"),
        ("--notify", "WHOM", "topic or channel for alarms; may be repeated", {"action": "append"}),
        ("--hosts", "N", "machines that should send, for the alarm agent-silent", {"type": whole(86_400)}),
        ("--autoscaling-group", "NAME", "a group whose instances in service should send; may be repeated",
         {"dest": "groups", "action": "append"}),
        ("--resource-type", "TYPE", "monitored resource that sends, for alarms; may be repeated (the sink's)",
         {"dest": "resources", "action": "append"}),
        ("--threshold", "ALARM=N", "threshold of an alarm, such as gpu-idle=10; may be repeated",
         {"dest": "thresholds", "type": pair, "action": "append"}),
        ("--minutes", "ALARM=N", "minutes before an alarm, such as gpu-idle=30; may be repeated",
         {"type": pair, "action": "append"}),
    ),
    "top": (
        ("--replay", "FILE", "show this recording, also JSON lines of the agent",
         {"nargs": "+", "type": Path, "action": "store"}),
        ("--colors", "NAME", "dark, light, color-blind, high-contrast, mono or none (the terminal's)",
         {"choices": ("dark", "light", "color-blind", "high-contrast", "mono", "none")}),
        ("--ascii", "", "draw with ASCII characters only"),
        *FLEET,
    ),
    "fleet": (
        *FLEET,
        ("--json", "", "print one JSON object"),
        ("--csv", "", "print a line a node, with a head"),
        ("--timeout", "TIME", "end after this time, with the nodes that have answered (15s)", {"type": seconds}),
        ("--every", "TIME", "print this machine again and again, an object a line, as `top ssh://HOST` reads it",
         {"type": seconds}),
        *AGENT,
    ),
    "report": (
        ("files", "FILE", "recordings: of `chipwatch record`, or JSON lines of the agent, also gzipped",
         {"nargs": "+", "type": Path, "action": "store"}),
        ("-o --output", "FILE", "the page (report.html)", {"type": Path, "default": Path("report.html")}),
        ("--price", "USD", "dollars an hour and accelerator", {"type": price, "default": None}),
        ("--grid", "REGION", "for CO2: grams a kWh, or where the power is from: a country (DE) or a cloud's region",
         {"default": None}),
    ),
    "record": (
        ("file", "FILE", "the file to make; one that is there gets a number", {"nargs": "?"}),
        ("--duration", "TIME", "end after this time", {"type": seconds}),
        ("--seal", "", "make the running agent keep its last minutes as an incident"),
        ("--job", "NAME", "with --seal: this job failed"),
        ("--code", "CODE", "with --job: its exit code, or Slurm's CODE:SIGNAL"),
        *BESIDE,
    ),
    "incidents": AGENT,
    "export": (
        ("files", "FILE", "the recording; files of one run are read together",
         {"nargs": "+", "type": Path, "action": "store"}),
        ("--to", "FORM", "jsonl, csv, openmetrics or parquet (jsonl)",
         {"choices": ("jsonl", "csv", "openmetrics", "parquet"), "default": "jsonl"}),
        ("-o --output", "FILE", "write to this file; parquet needs one", {"type": Path}),
    ),
    "health": (
        ("--ready", "", "check whether it sends too, not only whether its clock ticks"),
        ("--url", "URL", "ask this server (http://HOST:PORT), as `--health` made it"),
        ("--health", "[HOST:]PORT", "the agent's own --health"),
        *AGENT,
    ),
    "status": (
        ("--json", "", "print one JSON object"),
        ("-v --verbose", "", "say why each collector is absent"),
        *AGENT,
    ),
    "verdict": (
        ("--for", "CALLER", "whose exit codes and form: person, slurm, npd or nagios (person)",
         {"dest": "caller", "choices": tuple(CALLERS), "default": "person"}),
        ("--expect", "THING=N,...", "what there should be: gpus=8,rdma=8x400,neuron=16,tpus=4,nvme=8",
         {"action": "store"}),
        ("--expect-from", "WORD", "expect what a machine of this type has: instance_type",
         {"choices": ("instance_type",)}),
        ("--json", "", "print one JSON object"),
        ("--timeout", "TIME", "end after this time, as unknown where something does not answer (2s)",
         {"type": seconds}),
        *AGENT, *PLACES,
    ),
    "jobs": (
        ("--since", "TIME", "the jobs of this time, ended ones too, and how well they used their accelerators: 7d",
         {"type": seconds}),
        ("--job", "NAME", "only jobs of this name"),
        ("--format", "FORM", "text, json or csv (text)", {"choices": ("text", "json", "csv")}),
        ("--json", "", "print one JSON object"),
        ("--prometheus", "URL", "the fleet's jobs of the last hour, or --since, from a store with Prometheus' API"),
        ("--token-file", "FILE", "send the bearer token in this file to the store; by https only", {"type": Path}),
        ("--ca-file", "FILE", "trust the certificates in this file (the system's)", {"type": Path}),
        *AGENT,
    ),
    "why": (
        ("name", "JOB", "only this job", {"nargs": "?", "default": None}),
        ("--json", "", "print one JSON object"),
        *AGENT,
    ),
    "list": (
        ("word", "WORD", "only metrics and collectors whose name has this word, or of this family", {"nargs": "?"}),
        ("--here", "", "only metrics that this machine has now"),
        ("--level", "LEVEL", "only metrics of this level and below", {"choices": ("basic", "detailed", "all")}),
        ("--format", "FORM", "text, markdown or json (text)", {"choices": ("text", "markdown", "json")}),
    ),
    "sample-config": (("name", "NAME", "only the options of this collector, processor or sink", {"nargs": "?"}),),
    "completion": (("shell", "SHELL", "bash, zsh or fish", {"choices": ("bash", "zsh", "fish")}),),
    "help": (("about", "COMMAND", "the command", {"nargs": "?", "choices": tuple(COMMANDS)}),),
}  # fmt: skip
CONFIGURED: Final = ("run", "record", "check", "plan", "dashboard", "top")
"""Commands that take every option of the configuration."""
