"""
Runs Helm 4 (helm-sdkpy) under a separate Python: a release for each set of values, installed, upgraded, tested, removed.

Takes {"chart", "kubeconfig", "namespace", "lives": {key: {"values", "then"}}} as JSON on standard input; prints what came of each.
"""

import asyncio
import json
import sys

import helm_sdkpy as helm

RELEASE = "chipwatch"


async def live(config, chart: str, values: dict, then: dict | None) -> dict:
    """Return what an installation answers; with `then`, upgrade to these values and test the release, too."""
    wait = {"wait": False, "timeout": 30}
    try:
        result = {"installed": await helm.Install(config).run(RELEASE, chart, values=values, **wait)}
        if then is not None:
            result["upgraded"] = await helm.Upgrade(config).run(RELEASE, chart, values=then, **wait)
            result["tested"] = await helm.ReleaseTest(config).run(RELEASE)
        result["removed"] = await helm.Uninstall(config).run(RELEASE, wait=False, timeout=30)
    except helm.HelmError as problem:
        return {"error": str(problem)}
    return result


async def main() -> None:
    """Do as told."""
    told = json.load(sys.stdin)
    config = helm.Configuration(namespace=told["namespace"], kubeconfig=told["kubeconfig"])
    results = {}
    for key, life in told["lives"].items():
        results[key] = await live(config, told["chart"], life["values"], life.get("then"))
    json.dump(results, sys.stdout)


asyncio.run(main())
