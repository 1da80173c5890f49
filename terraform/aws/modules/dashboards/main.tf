# The dashboard that `chipwatch dashboard --cloud cloudwatch` prints, put together of the families that are wanted.

data "aws_region" "current" {}

locals {
  by_runtime = contains(var.dimensions, "neuron_runtime_tag")
  # A dimension of points and not of machines: the templates have it where it belongs.
  machine = [for word in concat(var.dimensions, tolist(var.own_dimensions)) : word if word != "neuron_runtime_tag"]

  files = {
    for family in var.families : family => family == "neuron" && local.by_runtime ? "neuron-by-runtime" : family
  }

  # `all` sends more than is drawn.
  level = var.level == "all" ? "detailed" : var.level

  widgets = {
    for family, file in local.files : family => jsondecode(templatefile("${path.module}/generated/${local.level}/${file}.json.tftpl", {
      region    = coalesce(var.region, data.aws_region.current.region)
      namespace = var.namespace
      dims      = join(",", [for word in local.machine : "\\\"${word}\\\""])
    })).widgets
  }

  # One family below the other.
  order  = [for family in ["host", "gpu", "neuron", "fabric", "health"] : family if contains(var.families, family)]
  height = { for family, widgets in local.widgets : family => max([for widget in widgets : widget.y + widget.height]...) }
  top    = { for n, family in local.order : family => sum(concat([0], [for above in slice(local.order, 0, n) : local.height[above]])) }

  body = jsonencode({
    start          = var.start
    periodOverride = "inherit"
    widgets = flatten([
      for family in local.order : [for widget in local.widgets[family] : merge(widget, { y = widget.y + local.top[family] })]
    ])
  })
}

resource "aws_cloudwatch_dashboard" "this" {
  count = var.create ? 1 : 0

  region         = var.region
  dashboard_name = var.name
  dashboard_body = local.body
}
