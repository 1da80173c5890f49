variable "region" {
  description = "Region of everything."
  type        = string
  default     = "us-east-1"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]{2,}(-[a-z]+)+-[0-9]+$", var.region))
    error_message = "region: the name of a region, as in us-east-1."
  }
}

variable "cluster_name" {
  description = "EKS cluster; it has the add-on eks-pod-identity-agent."
  type        = string
  nullable    = false
}

variable "namespace" {
  description = "Namespace of the Helm release."
  type        = string
  default     = "chipwatch"
  nullable    = false
}

variable "service_account" {
  description = "Service account of the Helm release."
  type        = string
  default     = "chipwatch"
  nullable    = false
}

variable "oidc_provider_arn" {
  description = "The cluster's OpenID Connect provider; no such role unless set."
  type        = string
  default     = null
}
