# The script that installs the agent on a machine of Compute Engine, or brings what is there to another version or configuration. It
# asks nobody for credentials: the agent finds the project and the service account at the machine's metadata server.

locals {
  files = "${path.module}/../../files"

  # What the script has no variable for: keys first, as TOML wants it; then yours, which may end with tables.
  config = join("\n", concat(
    [for key, value in { project = var.agent.project } : "${key} = ${jsonencode(value)}" if value != null],
    [for key, value in { interval = var.agent.interval, window = var.agent.window } : "${key} = ${value}" if value != null],
    [for key, value in var.agent.dims : "dims.${key} = ${jsonencode(value)}"],
    [for key, value in { prefix = var.agent.metric_prefix, resource = var.agent.resource } : "sinks.google.${key} = ${jsonencode(value)}" if value != null],
    var.agent.prometheus_port == null ? [] : ["sinks.prometheus.listen = \"0.0.0.0:${var.agent.prometheus_port}\""],
    var.agent.config == "" ? [] : [chomp(var.agent.config)],
  ))

  script = templatefile("${local.files}/install.sh.tftpl", {
    version      = var.agent.version
    extras       = join(",", var.agent.extras)
    sink         = var.agent.prometheus_port == null ? "google" : "google,prometheus"
    namespace    = ""
    region       = ""
    common_dims  = join(",", var.agent.common_dims)
    level        = var.agent.level
    config       = local.config
    wheelhouse   = trimsuffix(var.agent.wheelhouse, "/")
    sums_sha256  = var.agent.sums_sha256
    index_url    = var.agent.index_url
    constraints  = var.agent.constraints
    wheel_sha256 = var.agent.wheel_sha256
    unit         = chomp(file("${local.files}/chipwatch.service"))
    uninstall    = chomp(file("${local.files}/uninstall.sh"))
  })
}
