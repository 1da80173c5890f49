terraform {
  required_version = ">= 1.5.7"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.69" # the destination cloudwatch of a scraper; an older version may have it
    }
  }
}
