"""`make golden`: writes the generated files; a test says which of them differs from its generator."""

from __future__ import annotations

from pathlib import Path

from tools import dashboards, fleet, hardware, installers, messages, name_pages, pages, schema, values, verdict


def of_catalogue() -> dict[Path, str]:
    """Return the text of each generated file that the catalogue of metrics may change, by path."""
    return {
        pages.DOCUMENT: pages.document(),
        pages.IDENTITY: pages.names(),
        pages.OTEL_NAMES: pages.otel_names(),
        schema.SCHEMA: schema.schema(),
        **name_pages.pages(),
        **dashboards.dashboards(),
        **dashboards.terraform_aws(),
        **dashboards.terraform_google(),
    }


def files() -> dict[Path, str]:
    """Return the text of each generated file, by path."""
    return {
        **of_catalogue(),
        messages.GOLDEN: messages.messages(),
        fleet.TABLE: fleet.table(),
        hardware.PAGE: hardware.page(),
        verdict.PAGE: verdict.page(),
        verdict.situations.TABLE: verdict.table(),
        **installers.installers(),
        values.PAGE: values.page(),
    }


if __name__ == "__main__":
    for path, text in {**files(), **dashboards.products()}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
