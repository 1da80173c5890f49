# The roles for the Helm chart on EKS: by Pod Identity, and for clusters without its add-on by their OpenID Connect provider.

provider "aws" {
  region = var.region
}

module "iam" {
  source = "../../modules/iam"

  create_pod_identity = true
  create_irsa         = var.oidc_provider_arn != null
  dimensions          = ["k8s_cluster", "k8s_node", "instance_id"]

  pod_identity_associations = {
    daemon = {
      cluster_name    = var.cluster_name
      namespace       = var.namespace
      service_account = var.service_account
    }
  }

  irsa = {
    oidc_provider_arn = var.oidc_provider_arn
    service_accounts  = ["${var.namespace}:${var.service_account}"]
  }

  tags = { app = "chipwatch" }
}
