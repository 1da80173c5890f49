"""What a machine of a known type has, for `--expect-from instance_type`."""

from __future__ import annotations

from typing import Final

INSTANCES: Final = {
    # AWS: accelerated-computing instances, https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html; their network
    # cards, each an EFA device, https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html. Without a
    # speed: EFA's driver reports 100 Gbit/s for any, and devices are there only as far as they were attached.
    "p3.2xlarge": "gpus=1", "p3.8xlarge": "gpus=4", "p3.16xlarge": "gpus=8", "p3dn.24xlarge": "gpus=8",
    "p4d.24xlarge": "gpus=8", "p4de.24xlarge": "gpus=8",
    "p5.4xlarge": "gpus=1", "p5.48xlarge": "gpus=8", "p5e.48xlarge": "gpus=8", "p5en.48xlarge": "gpus=8",
    "p6-b200.48xlarge": "gpus=8", "p6-b300.48xlarge": "gpus=8",
    "g4dn.xlarge": "gpus=1", "g4dn.12xlarge": "gpus=4", "g4dn.metal": "gpus=8",
    "g5.xlarge": "gpus=1", "g5.12xlarge": "gpus=4", "g5.24xlarge": "gpus=4", "g5.48xlarge": "gpus=8",
    "g6.xlarge": "gpus=1", "g6.12xlarge": "gpus=4", "g6.24xlarge": "gpus=4", "g6.48xlarge": "gpus=8",
    "g6e.xlarge": "gpus=1", "g6e.12xlarge": "gpus=4", "g6e.24xlarge": "gpus=4", "g6e.48xlarge": "gpus=8",
    "trn1.2xlarge": "neuron=1", "trn1.32xlarge": "neuron=16", "trn1n.32xlarge": "neuron=16",
    "trn2.48xlarge": "neuron=16",
    "inf2.xlarge": "neuron=1", "inf2.8xlarge": "neuron=1", "inf2.24xlarge": "neuron=6", "inf2.48xlarge": "neuron=12",
    # Google Cloud: https://cloud.google.com/compute/docs/gpus
    "a2-highgpu-1g": "gpus=1", "a2-highgpu-2g": "gpus=2", "a2-highgpu-4g": "gpus=4", "a2-highgpu-8g": "gpus=8",
    "a2-megagpu-16g": "gpus=16", "a2-ultragpu-8g": "gpus=8", "a3-highgpu-8g": "gpus=8", "a3-megagpu-8g": "gpus=8",
    "a3-ultragpu-8g": "gpus=8,rdma=8x400", "a4-highgpu-8g": "gpus=8,rdma=8x400",
    "g2-standard-4": "gpus=1", "g2-standard-24": "gpus=2", "g2-standard-48": "gpus=4", "g2-standard-96": "gpus=8",
}  # fmt: skip
"""Type -> what `--expect` would be given."""
