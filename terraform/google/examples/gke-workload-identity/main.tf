# The service account that the chart's pods on GKE act as, and the values that the chart needs for it. The cluster has Workload
# Identity Federation.

provider "google" {
  project = var.project_id
}

module "service_account" {
  source = "../../modules/service-account"

  project_id = var.project_id
  account_id = "chipwatch-gke"

  # By a service account of Google's, which the annotation names ...
  workload_identity = var.direct ? {} : {
    cluster = { namespace = var.namespace }
  }

  # ... or by itself, without one.
  create_account = !var.direct
  principals = var.direct ? {
    cluster = { project_number = var.project_number, namespace = var.namespace }
  } : {}
}

# helm install chipwatch helm/chipwatch --namespace chipwatch --values <(terraform output -raw helm_values) --set image.repository=...
locals {
  helm_values = {
    clusterName    = var.cluster_name
    sinks          = ["google"]
    google         = { project = var.project_id }
    serviceAccount = { name = "chipwatch", annotations = module.service_account.annotations }
  }
}
