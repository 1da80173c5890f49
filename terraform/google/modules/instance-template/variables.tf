variable "create" {
  description = "Whether to create anything."
  type        = bool
  default     = true
  nullable    = false
}

variable "project_id" {
  description = "Project in which everything is created."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project_id))
    error_message = "project_id: the id of a project, such as my-project; neither its number nor its name."
  }
}

variable "region" {
  description = "Region of the groups that use the template, for network.subnetwork; the provider's unless set."
  type        = string
  default     = null

  validation {
    condition     = var.region == null ? true : can(regex("^[a-z]+(-[a-z]+)+[0-9]+$", var.region))
    error_message = "region: the name of a region, such as us-central1."
  }
}

variable "name" {
  description = "Name of the template."
  type        = string
  default     = "chipwatch"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]([a-z0-9-]{0,34}[a-z0-9])?$", var.name))
    error_message = "name: 1 to 36 small letters, digits and hyphens; it begins with a letter and ends with no hyphen."
  }
}

variable "use_name_prefix" {
  description = "Whether something unique is appended to the name; without it a change of the template cannot be applied while a group uses it."
  type        = bool
  default     = true
  nullable    = false
}

variable "description" {
  description = "Description of the template."
  type        = string
  default     = "Machines that run chipwatch"
  nullable    = false

  validation {
    condition     = length(var.description) <= 2048
    error_message = "description: at most 2048 characters."
  }
}

variable "machine_type" {
  description = "Machine type, such as g2-standard-8."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9]*(-[a-z0-9]+)+$", var.machine_type))
    error_message = "machine_type: a type of Compute Engine, such as g2-standard-8."
  }
}

variable "source_image" {
  description = "Image or family: Debian 12 or 13, Ubuntu 22.04 or 24.04, Rocky or Red Hat 9; Container-Optimized OS has no Python."
  type        = string
  default     = "projects/debian-cloud/global/images/family/debian-12"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9][A-Za-z0-9:./_-]*[a-z0-9]$", var.source_image)) && !can(regex("cos-cloud|(^|/)cos-", var.source_image))
    error_message = "source_image: an image or a family, as in projects/debian-cloud/global/images/family/debian-12; not Container-Optimized OS, which has no Python: see the chart for GKE."
  }
}

variable "disk" {
  description = "The boot disk: size_gb, type (pd-balanced unless set) and kms_key, your own key for it."
  type = object({
    size_gb = optional(number)
    type    = optional(string, "pd-balanced")
    kms_key = optional(string)
  })
  default  = {}
  nullable = false

  validation {
    condition     = var.disk.size_gb == null || try(var.disk.size_gb >= 10 && var.disk.size_gb <= 65536 && floor(var.disk.size_gb) == var.disk.size_gb, false)
    error_message = "disk: size_gb is a whole number from 10 to 65536."
  }

  validation {
    condition     = var.disk.type == null || can(regex("^(pd|hyperdisk)-[a-z-]+$", var.disk.type))
    error_message = "disk: type is one of Compute Engine's, such as pd-balanced or hyperdisk-balanced."
  }

  validation {
    condition     = var.disk.kms_key == null || can(regex("^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+(/cryptoKeyVersions/[0-9]+)?$", var.disk.kms_key))
    error_message = "disk: kms_key is projects/P/locations/L/keyRings/R/cryptoKeys/K."
  }
}

variable "network" {
  description = "network (default) or, better, subnetwork with its subnetwork_project; nic_type; public_ip. Without a public address the subnetwork needs Private Google Access, and an index of wheels by NAT unless there is a wheelhouse."
  type = object({
    network            = optional(string)
    subnetwork         = optional(string)
    subnetwork_project = optional(string)
    nic_type           = optional(string)
    public_ip          = optional(bool, false)
  })
  default  = {}
  nullable = false

  validation {
    condition     = var.network.nic_type == null || can(regex("^(GVNIC|VIRTIO_NET|IDPF|MRDMA|IRDMA)$", var.network.nic_type))
    error_message = "network: nic_type is GVNIC, VIRTIO_NET, IDPF, MRDMA or IRDMA."
  }

  validation {
    condition     = alltrue([for name in [var.network.network, var.network.subnetwork] : name == null || can(regex("^(https://[a-z0-9.-]+/compute/[a-z0-9]+/)?([a-z0-9.:-]+/)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?$", name))])
    error_message = "network: network and subnetwork are names, or full ones such as projects/P/regions/us-central1/subnetworks/S."
  }

  validation {
    condition     = var.network.network == null || var.network.subnetwork == null
    error_message = "network: network or subnetwork, not both: a subnetwork has its network."
  }

  validation {
    condition     = var.network.subnetwork_project == null || (can(regex("^([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.network.subnetwork_project)) && var.network.subnetwork != null)
    error_message = "network: subnetwork_project is the id of a project, such as my-project, and goes with subnetwork."
  }
}

variable "network_tags" {
  description = "Network tags."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for tag in var.network_tags : can(regex("^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$", tag))])
    error_message = "network_tags: small letters, digits and hyphens, 63 at most."
  }

  validation {
    condition     = length(var.network_tags) <= 64
    error_message = "network_tags: at most 64."
  }
}

variable "service_account_email" {
  description = "Service account of the machines: modules/service-account makes one."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9-]+@[a-z0-9.-]+\\.gserviceaccount\\.com$", var.service_account_email))
    error_message = "service_account_email: the address of a service account, as in chipwatch@my-project.iam.gserviceaccount.com."
  }
}

variable "scopes" {
  description = "OAuth scopes of the machines. With cloud-platform the service account's roles alone say what is allowed, as Google advises; the agent needs monitoring.write, and devstorage.read_only for a wheelhouse."
  type        = set(string)
  default     = ["https://www.googleapis.com/auth/cloud-platform"]
  nullable    = false

  validation {
    condition     = anytrue([for scope in var.scopes : can(regex("^(https://www\\.googleapis\\.com/auth/)?(cloud-platform|monitoring([.-]write)?)$", scope))])
    error_message = "scopes: the agent needs https://www.googleapis.com/auth/monitoring.write, or cloud-platform."
  }
}

variable "accelerators" {
  description = "GPUs that are attached, each with its type and count (1); machine types such as g2, a2, a3 and TPU types have theirs, and need none here."
  type = list(object({
    type  = string
    count = optional(number, 1)
  }))
  default  = []
  nullable = false

  validation {
    condition     = alltrue([for one in var.accelerators : can(regex("^(projects/[^/]+/zones/[^/]+/acceleratorTypes/)?[a-z][a-z0-9-]+$", one.type))])
    error_message = "accelerators: type is required, and is one of Compute Engine's, such as nvidia-tesla-t4."
  }

  validation {
    condition     = alltrue([for one in var.accelerators : contains([1, 2, 4, 8, 16], one.count)])
    error_message = "accelerators: count is 1, 2, 4, 8 or 16."
  }
}

variable "on_host_maintenance" {
  description = "MIGRATE or TERMINATE. With accelerators, built in (a2, a3, a4, g2, g4, ct and tpu types) or attached, and with spot it is TERMINATE in any case."
  type        = string
  default     = "MIGRATE"
  nullable    = false

  validation {
    condition     = contains(["MIGRATE", "TERMINATE"], var.on_host_maintenance)
    error_message = "on_host_maintenance: MIGRATE or TERMINATE."
  }
}

variable "spot" {
  description = "Whether the machines are spot machines."
  type        = bool
  default     = false
  nullable    = false
}

variable "shielded" {
  description = "Shielded VM: secure_boot, vtpm and integrity_monitoring, all true unless set. NVIDIA's drivers of most images are not signed: set secure_boot to false there."
  type = object({
    secure_boot          = optional(bool, true)
    vtpm                 = optional(bool, true)
    integrity_monitoring = optional(bool, true)
  })
  default  = {}
  nullable = false

  validation {
    condition     = var.shielded.vtpm || !var.shielded.integrity_monitoring
    error_message = "shielded: integrity_monitoring needs vtpm; set both to false, or vtpm to true."
  }
}

variable "os_config" {
  description = "Whether to switch VM Manager's agent on, which modules/os-policy needs; as the project has it unless set. The template's machines have chipwatch without it."
  type        = bool
  default     = false
  nullable    = false
}

variable "metadata" {
  description = "Further metadata, or other values for what the module sets; startup-script is the agent's."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = !contains(keys(var.metadata), "startup-script")
    error_message = "metadata: startup-script is what installs the agent; put modules/install-script's into a script of your own instead."
  }

  validation {
    condition     = alltrue([for key, value in var.metadata : can(regex("^[A-Za-z0-9_-]{1,128}$", key)) && try(length(value) <= 262144, false)])
    error_message = "metadata: keys are 1 to 128 letters, digits, _ and hyphens; a value has at most 256 KiB."
  }
}

variable "labels" {
  description = "Labels of machines and disks."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = length(var.labels) <= 63 && alltrue([for key, value in var.labels : can(regex("^[a-z][a-z0-9_-]{0,62}$", key)) && can(regex("^[a-z0-9_-]{0,63}$", value))])
    error_message = "labels: at most 63; keys and values are small letters, digits, _ and hyphens, 63 at most; a key begins with a letter."
  }
}

variable "agent" {
  description = "What is installed, and how it is configured: see modules/install-script."
  type = object({
    version         = string
    extras          = optional(list(string), ["google"])
    level           = optional(string, "basic")
    common_dims     = optional(list(string), [])
    dims            = optional(map(string), {})
    interval        = optional(number)
    window          = optional(number)
    project         = optional(string)
    metric_prefix   = optional(string)
    resource        = optional(string)
    prometheus_port = optional(number)
    config          = optional(string, "")
    wheelhouse      = optional(string, "")
    sums_sha256     = optional(string, "")
    index_url       = optional(string, "")
    constraints     = optional(string, "")
    wheel_sha256    = optional(string, "")
  })
  nullable = false
}
