# The dashboard that `chipwatch dashboard --cloud google` prints, put together of the families that are wanted.

locals {
  # `all` sends more than is drawn.
  level = var.level == "all" ? "detailed" : var.level

  # One family below the other.
  order = [for family in ["host", "gpu", "neuron", "tpu", "fabric", "health"] : family if contains(var.families, family)]

  tiles = {
    for family in local.order : family => jsondecode(templatefile("${path.module}/generated/${local.level}/${family}.json.tftpl", {
      prefix        = var.name
      metric_prefix = var.metric_prefix
    })).mosaicLayout.tiles
  }
  height = { for family, tiles in local.tiles : family => max([for tile in tiles : tile.yPos + tile.height]...) }
  top    = { for n, family in local.order : family => sum(concat([0], [for above in slice(local.order, 0, n) : local.height[above]])) }

  dashboard = {
    displayName = var.name
    mosaicLayout = {
      columns = 12
      tiles = flatten([
        for family in local.order : [for tile in local.tiles[family] : merge(tile, { yPos = tile.yPos + local.top[family] })]
      ])
    }
  }
}

resource "google_monitoring_dashboard" "this" {
  count = var.create ? 1 : 0

  project        = var.project_id
  dashboard_json = jsonencode(local.dashboard)

  lifecycle {
    precondition {
      condition     = length(local.dashboard.mosaicLayout.tiles) <= 100
      error_message = "families: their dashboard has ${length(local.dashboard.mosaicLayout.tiles)} widgets, and Google allows 100; make one for some families, and another for the rest, or set level to basic."
    }
  }
}
