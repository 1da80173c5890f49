variable "region" {
  description = "Region of everything."
  type        = string
  default     = "us-east-1"
  nullable    = false
}

variable "name" {
  description = "What all names begin with."
  type        = string
  default     = "training"
  nullable    = false
}

variable "image_id" {
  description = "AMI, or resolve:ssm: and the name of a parameter."
  type        = string
  default     = "resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
  nullable    = false
}

variable "instance_type" {
  description = "Type of the instances."
  type        = string
  default     = "trn1.2xlarge"
  nullable    = false
}

variable "instances" {
  description = "How many instances."
  type        = number
  default     = 2
  nullable    = false
}

variable "subnet_ids" {
  description = "Subnets of the instances."
  type        = list(string)
  nullable    = false
}

variable "security_group_ids" {
  description = "Security groups of the instances."
  type        = list(string)
  nullable    = false
}

variable "agent_version" {
  description = "Version of chipwatch."
  type        = string
  nullable    = false
}

variable "wheelhouse" {
  description = "Folder on S3 that `make dist` made; the agent is installed from there."
  type        = string
  nullable    = false
}

variable "sums_sha256" {
  description = "SHA-256 of the wheelhouse's file SHA256SUMS."
  type        = string
  nullable    = false
}

variable "alarm_actions" {
  description = "ARNs of topics that alarms tell."
  type        = list(string)
  default     = []
  nullable    = false
}
