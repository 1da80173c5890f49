"""Makes botocore's clients without the list of the endpoints of all services."""

from __future__ import annotations

from typing import Any

import botocore.session
from botocore.loaders import Loader


def create_client(profile: str | None, *words: Any, **more: Any) -> Any:
    """Return a client, as `botocore.session.Session.create_client` makes it."""
    session = botocore.session.Session(profile=profile)
    session.register_component("data_loader", SmallLoader())
    return session.create_client(*words, **more)


class SmallLoader(Loader):  # type: ignore[misc]  # botocore has no types
    """
    Does not load botocore's list of the endpoints of all services, which would take 8 MB while the client exists.

    botocore computes the endpoints of CloudWatch and STS from rules; it uses only the partitions of the list.
    """

    def load_data_with_path(self, name: str) -> tuple[Any, str]:
        if name != "endpoints":
            return super().load_data_with_path(name)  # type: ignore[no-any-return]
        data, path = super().load_data_with_path("partitions")
        return {"version": 3, "partitions": [*map(_partition, data["partitions"])]}, path


def _partition(partition: dict[str, Any]) -> dict[str, Any]:
    """Return a partition in the format of the list of endpoints, without services."""
    outputs = partition["outputs"]
    kinds = [(["fips"], "-fips", outputs["dnsSuffix"])]
    if outputs["supportsDualStack"]:
        suffix = outputs["dualStackDnsSuffix"]
        kinds += [(["dualstack"], "", suffix), (["dualstack", "fips"], "-fips", suffix)]
    variants = [
        {"tags": tags, "hostname": f"{{service}}{infix}.{{region}}.{{dnsSuffix}}", "dnsSuffix": suffix}
        for tags, infix, suffix in kinds
    ]
    defaults = {"hostname": "{service}.{region}.{dnsSuffix}", "protocols": ["https"], "signatureVersions": ["v4"]}
    return {
        "partition": partition["id"],
        "dnsSuffix": outputs["dnsSuffix"],
        "regionRegex": partition["regionRegex"],
        "regions": partition["regions"],
        "services": {},
        "defaults": {**defaults, "variants": variants},
    }
