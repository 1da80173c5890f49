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

variable "vpc_id" {
  description = "The agents' VPC, with DNS."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^vpc-[0-9a-f]+$", var.vpc_id))
    error_message = "vpc_id: the id of a VPC, as in vpc-0123456789abcdef0."
  }
}

variable "subnet_ids" {
  description = "Subnets of the collector's network interfaces: two or more, in different availability zones."
  type        = set(string)
  nullable    = false

  validation {
    condition     = length(var.subnet_ids) > 1 && alltrue([for id in var.subnet_ids : can(regex("^subnet-[0-9a-f]+$", id))])
    error_message = "subnet_ids: two or more ids of subnets, as in subnet-0123456789abcdef0."
  }
}

variable "agents_security_group_id" {
  description = "Security group of the machines with an agent; the collector's is let in at the port."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^sg-[0-9a-f]+$", var.agents_security_group_id))
    error_message = "agents_security_group_id: the id of a security group, as in sg-0123456789abcdef0."
  }
}

variable "agents_dns_name" {
  description = "Name in Route 53 or Cloud Map whose A records are the agents' addresses."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)+$", var.agents_dns_name))
    error_message = "agents_dns_name: a name with a dot in it, as in agents.chipwatch.internal."
  }
}

variable "port" {
  description = "Port of the agents' pages: listen of [sinks.prometheus]."
  type        = number
  default     = 9465
  nullable    = false

  validation {
    condition     = var.port >= 1 && var.port <= 65535 && floor(var.port) == var.port
    error_message = "port: a whole number from 1 to 65535."
  }
}
