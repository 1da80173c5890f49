# The script that installs the agent on a machine of Compute Engine, or brings what is there to another version or configuration. It
# asks nobody for credentials: the agent finds the project and the service account at the machine's metadata server.

locals {
  files = "${path.module}/../../files"

  # With what was left out or null.
  agent = {
    for key, default in {
      version         = null
      extras          = ["google"]
      level           = "basic"
      common_dims     = []
      dims            = {}
      interval        = null
      window          = null
      project         = null
      metric_prefix   = null
      resource        = null
      prometheus_port = null
      config          = ""
      wheelhouse      = ""
      sums_sha256     = ""
      index_url       = ""
      constraints     = ""
      wheel_sha256    = ""
    } : key => try(coalesce(var.agent[key]), default)
  }

  # What the script has no variable for: keys first, as TOML wants it; then yours, which may end with tables.
  config = join("\n", concat(
    [for key, value in { project = local.agent.project } : "${key} = ${jsonencode(value)}" if value != null],
    [for key, value in { interval = local.agent.interval, window = local.agent.window } : "${key} = ${value}" if value != null],
    [for key, value in local.agent.dims : "dims.${key} = ${jsonencode(value)}"],
    [for key, value in { prefix = local.agent.metric_prefix, resource = local.agent.resource } : "sinks.google.${key} = ${jsonencode(value)}" if value != null],
    local.agent.prometheus_port == null ? [] : ["sinks.prometheus.listen = \"0.0.0.0:${local.agent.prometheus_port}\""],
    local.agent.config == "" ? [] : [chomp(local.agent.config)],
  ))

  script = templatefile("${local.files}/install.sh.tftpl", {
    version      = local.agent.version
    extras       = join(",", local.agent.extras)
    sink         = local.agent.prometheus_port == null ? "google" : "google,prometheus"
    namespace    = ""
    region       = ""
    common_dims  = join(",", local.agent.common_dims)
    level        = local.agent.level
    config       = local.config
    wheelhouse   = trimsuffix(local.agent.wheelhouse, "/")
    sums_sha256  = local.agent.sums_sha256
    index_url    = local.agent.index_url
    constraints  = local.agent.constraints
    wheel_sha256 = local.agent.wheel_sha256
    unit         = chomp(file("${local.files}/chipwatch.service"))
    uninstall    = chomp(file("${local.files}/uninstall.sh"))
  })
}
