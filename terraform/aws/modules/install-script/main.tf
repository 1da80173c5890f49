# The script that installs the agent on an instance, or brings what is there to another version or configuration. It has no
# credentials in it: the agent takes those of the instance's role.

locals {
  files = "${path.module}/../../files"

  script = templatefile("${path.module}/../../user-data.sh.tftpl", {
    version      = var.agent.version
    extras       = join(",", var.agent.extras)
    sink         = join(",", var.agent.sinks)
    namespace    = var.agent.namespace
    region       = var.agent.region
    common_dims  = join(",", var.agent.dimensions)
    level        = var.agent.level
    config       = chomp(var.agent.config)
    wheelhouse   = trimsuffix(var.agent.wheelhouse, "/")
    sums_sha256  = var.agent.sums_sha256
    index_url    = var.agent.index_url
    constraints  = var.agent.constraints
    wheel_sha256 = var.agent.wheel_sha256
    unit         = chomp(file("${local.files}/chipwatch.service"))
    uninstall    = chomp(file("${local.files}/uninstall.sh"))
  })
}
