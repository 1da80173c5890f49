mock_provider "google" {}

variables {
  project_id = "some-project"
}

run "metric_writer_and_nothing_else" {
  command = plan

  assert {
    condition     = google_project_iam_member.metric_writer[0].role == "roles/monitoring.metricWriter" && google_project_iam_member.metric_writer[0].project == "some-project"
    error_message = "The account may write metrics of its project."
  }

  assert {
    condition     = length(google_service_account_iam_member.workload_identity) + length(google_project_iam_member.principal) + length(google_storage_bucket_iam_member.wheelhouse) == 0
    error_message = "Nothing else is given that was not asked for."
  }
}

run "an_account_of_its_own" {
  command = apply

  variables {
    workload_identity = { cluster = {} }
  }

  assert {
    condition     = google_service_account_iam_member.workload_identity["cluster"].service_account_id == google_service_account.this[0].name
    error_message = "The right to act as an account is bound to its full name, not to its address."
  }
}

run "an_account_that_is_there" {
  command = plan

  variables {
    email              = "training@other-project.iam.gserviceaccount.com"
    metrics_project_id = "metrics-project"
    workload_identity  = { a = { namespace = "ml" }, b = { project_id = "clusters-project", service_account = "agent" } }
    wheelhouses        = ["gs://wheels", "gs://wheels/chipwatch/0.1.0/"]
  }

  assert {
    condition     = length(google_service_account.this) == 0 && google_project_iam_member.metric_writer[0].member == "serviceAccount:training@other-project.iam.gserviceaccount.com" && google_project_iam_member.metric_writer[0].project == "metrics-project"
    error_message = "It is given the role where metrics go."
  }

  assert {
    condition     = google_service_account_iam_member.workload_identity["a"].service_account_id == "projects/other-project/serviceAccounts/training@other-project.iam.gserviceaccount.com"
    error_message = "The account's project is that of its address."
  }

  assert {
    condition     = [for binding in google_service_account_iam_member.workload_identity : binding.member] == ["serviceAccount:some-project.svc.id.goog[ml/chipwatch]", "serviceAccount:clusters-project.svc.id.goog[chipwatch/agent]"]
    error_message = "A pod is of its cluster's pool."
  }

  assert {
    condition     = [for folder in google_storage_bucket_iam_member.wheelhouse : folder.condition[0].expression] == ["resource.type == \"storage.googleapis.com/Bucket\" || resource.name.startsWith(\"projects/_/buckets/wheels/objects/\")", "resource.type == \"storage.googleapis.com/Bucket\" || resource.name.startsWith(\"projects/_/buckets/wheels/objects/chipwatch/0.1.0/\")"]
    error_message = "What is read is below the folder."
  }

  assert {
    condition     = output.annotations["iam.gke.io/gcp-service-account"] == "training@other-project.iam.gserviceaccount.com"
    error_message = "The annotation names the account."
  }
}

run "pods_by_themselves" {
  command = plan

  variables {
    create_account = false
    principals     = { a = { project_number = "123456789012", namespace = "ml" } }
  }

  assert {
    condition     = google_project_iam_member.principal["a"].member == "principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/some-project.svc.id.goog/subject/ns/ml/sa/chipwatch"
    error_message = "A service account of Kubernetes has its own name in Google Cloud."
  }

  assert {
    condition     = output.email == null && output.member == null && length(output.annotations) == 0 && length(google_project_iam_member.metric_writer) == 0
    error_message = "Then no account of Google is needed."
  }
}

run "nothing" {
  command = plan

  variables {
    create            = false
    workload_identity = { a = {} }
    principals        = { a = { project_number = "123456789012" } }
    wheelhouses       = ["gs://wheels"]
  }

  assert {
    condition     = length(google_service_account.this) + length(google_project_iam_member.metric_writer) + length(google_service_account_iam_member.workload_identity) + length(google_project_iam_member.principal) + length(google_storage_bucket_iam_member.wheelhouse) == 0 && output.email == null && length(output.annotations) == 0
    error_message = "create = false creates nothing."
  }
}

run "refuses_what_needs_an_account_without_one" {
  command = plan

  variables {
    create_account    = false
    workload_identity = { a = {} }
    wheelhouses       = ["gs://wheels"]
  }

  expect_failures = [google_service_account_iam_member.workload_identity, google_storage_bucket_iam_member.wheelhouse]
}
