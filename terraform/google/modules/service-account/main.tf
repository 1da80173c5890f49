# The least that the agent needs: to write metrics, into one project.

locals {
  create = var.create && var.create_account && var.email == null
  exists = local.create || (var.create && var.email != null)
  email  = var.email == null ? try(google_service_account.this[0].email, null) : var.email
  id     = var.email == null ? try(google_service_account.this[0].name, null) : "projects/${local.home}/serviceAccounts/${var.email}"
  home   = try(regex("@(.+)\\.iam\\.gserviceaccount\\.com$", var.email)[0], var.project_id)
  member = "serviceAccount:${coalesce(local.email, "none")}"

  # A cluster is in this project unless it says another.
  workload_identity = { for name, pod in var.workload_identity : name => merge(pod, { project_id = coalesce(pod.project_id, var.project_id) }) if var.create }
  principals        = { for name, pod in var.principals : name => merge(pod, { project_id = coalesce(pod.project_id, var.project_id) }) if var.create }

  # Of a bucket the account sees the names below the folder, and reads what is in it.
  wheelhouses = var.create ? {
    for folder in var.wheelhouses : folder => {
      bucket = split("/", trimprefix(folder, "gs://"))[0]
      path   = join("/", slice(split("/", trimsuffix(trimprefix(folder, "gs://"), "/")), 1, length(split("/", trimsuffix(trimprefix(folder, "gs://"), "/")))))
    }
  } : {}
}

resource "google_service_account" "this" {
  count = local.create ? 1 : 0

  project      = var.project_id
  account_id   = var.account_id
  display_name = var.display_name
  description  = var.description
}

resource "google_project_iam_member" "metric_writer" {
  count = local.exists ? 1 : 0

  project = coalesce(var.metrics_project_id, var.project_id)
  role    = "roles/monitoring.metricWriter"
  member  = local.member
}

# -- pods, by Workload Identity Federation for GKE -----------------------------------------------------------------

# A service account of Kubernetes acts as this one; the annotation at it says so.
resource "google_service_account_iam_member" "workload_identity" {
  for_each = local.workload_identity

  service_account_id = local.id
  role               = "roles/iam.workloadIdentityUser"
  member             = "serviceAccount:${each.value.project_id}.svc.id.goog[${each.value.namespace}/${each.value.service_account}]"

  lifecycle {
    precondition {
      condition     = local.exists
      error_message = "workload_identity: create_account = false leaves no service account that could be acted as; give email, or leave workload_identity empty."
    }
  }
}

# A service account of Kubernetes has the role itself, and needs none of Google's and no annotation.
resource "google_project_iam_member" "principal" {
  for_each = local.principals

  project = coalesce(var.metrics_project_id, var.project_id)
  role    = "roles/monitoring.metricWriter"
  member = join("/", [
    "principal://iam.googleapis.com/projects/${each.value.project_number}/locations/global/workloadIdentityPools",
    "${each.value.project_id}.svc.id.goog/subject/ns/${each.value.namespace}/sa/${each.value.service_account}",
  ])
}

# -- the wheels, where machines install from a bucket --------------------------------------------------------------

resource "google_storage_bucket_iam_member" "wheelhouse" {
  for_each = local.wheelhouses

  bucket = each.value.bucket
  role   = "roles/storage.objectViewer"
  member = local.member

  condition {
    title       = "wheelhouse of chipwatch"
    description = "Lists the bucket, reads ${each.key}"
    expression = join(" || ", [
      "resource.type == \"storage.googleapis.com/Bucket\"",
      "resource.name.startsWith(\"projects/_/buckets/${each.value.bucket}/objects/${each.value.path}${each.value.path == "" ? "" : "/"}\")",
    ])
  }

  lifecycle {
    precondition {
      condition     = local.exists
      error_message = "wheelhouses: create_account = false leaves no service account that could read them; give email, or leave wheelhouses empty."
    }
  }
}
