"""
Keeps of a provider's schema what our modules use: `python -m tests.doubles.terraform.trim aws.json aws.json.xz ...`.

A full schema has the shape of `terraform providers schema -json`, and may be packed by xz. The schemas from which the
files in schemas/ were cut were rebuilt from PyPI's prebuilt bindings: cdktn-provider-aws (hashicorp/aws 6.69.1) and
cdktn-provider-google (hashicorp/google 8.7.0), whose JavaScript carries the generated TypeScript with every name, type
and nesting. Where the provider itself can be had, `terraform providers schema -json` gives the same.
"""

import json
import lzma
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SCHEMAS = Path(__file__).parent / "schemas"
USED = re.compile(r'^\s*(resource|data)\s+"(\w+)"', re.MULTILINE)


def used() -> dict[str, set[str]]:
    """Return the resources and the data sources of all modules, examples and tests."""
    found: dict[str, set[str]] = {"resource": set(), "data": set()}
    for file in (ROOT / "terraform").rglob("*.tf"):
        if ".terraform" not in file.parts:
            for kind, name in USED.findall(file.read_text(encoding="utf-8")):
                found[kind].add(name)
    return found


def trim(full: dict) -> dict:
    """Return the part of a schema that is used, and its provider."""
    [(source, of)] = full["provider_schemas"].items()
    prefix = f"{source.rpartition('/')[2]}_"
    wanted = {kind: sorted(name for name in names if name.startswith(prefix)) for kind, names in used().items()}
    kept = {
        "provider": of["provider"],
        "resource_schemas": {name: of["resource_schemas"][name] for name in wanted["resource"]},
        "data_source_schemas": {name: of["data_source_schemas"][name] for name in wanted["data"]},
    }
    return {key: value for key, value in full.items() if key != "provider_schemas"} | {
        "provider_schemas": {source: kept}
    }


def main() -> None:
    """Renew schemas/ from the named files."""
    for name in sys.argv[1:]:
        file = Path(name)
        content = file.read_bytes()
        kept = trim(json.loads(lzma.decompress(content) if file.suffix == ".xz" else content))
        text = json.dumps(kept, separators=(",", ":"), sort_keys=True)
        (SCHEMAS / f"{file.name.partition('.')[0]}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
