variable "project_id" {
  description = "Project of everything."
  type        = string
  nullable    = false
}

variable "region" {
  description = "Region of the machines."
  type        = string
  default     = "us-central1"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]+(-[a-z]+)+[0-9]+$", var.region))
    error_message = "region: the name of a region, such as us-central1."
  }
}

variable "name" {
  description = "What all names begin with."
  type        = string
  default     = "training"
  nullable    = false
}

variable "machine_type" {
  description = "Type of the machines."
  type        = string
  default     = "g2-standard-8"
  nullable    = false
}

variable "source_image" {
  description = "Image with Python 3.11 or later and NVIDIA's driver."
  type        = string
  nullable    = false
}

variable "kms_key" {
  description = "Key of the disks: projects/P/locations/L/keyRings/R/cryptoKeys/K; Google's own unless set."
  type        = string
  default     = null
}

variable "subnetwork" {
  description = "Subnetwork of the machines, with Private Google Access."
  type        = string
  nullable    = false
}

variable "instances" {
  description = "How many machines."
  type        = number
  default     = 2
  nullable    = false

  validation {
    condition     = var.instances >= 0 && floor(var.instances) == var.instances
    error_message = "instances: a whole number, 0 or more."
  }
}

variable "agent_version" {
  description = "Version of chipwatch."
  type        = string
  nullable    = false
}

variable "wheelhouse" {
  description = "Folder of Cloud Storage that `make dist` made; the agent is installed from there."
  type        = string
  nullable    = false
}

variable "sums_sha256" {
  description = "SHA-256 of the wheelhouse's file SHA256SUMS."
  type        = string
  nullable    = false
}

variable "notification_channels" {
  description = "Whom alert policies tell: projects/P/notificationChannels/N."
  type        = list(string)
  default     = []
  nullable    = false
}
