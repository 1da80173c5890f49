import pytest

from chipwatch.net.aws_regions import region_fault
from chipwatch_sinks.cloudwatch import CloudwatchSink

pytest.importorskip("botocore")


@pytest.mark.parametrize("region", ["us-east-1", "cn-north-1", "us-gov-west-1", "${region}"])
def test_a_region_that_exists_and_a_templates_variable_are_taken(region):
    assert region_fault(region) is None
    assert CloudwatchSink.Config(region=region).region == region


def test_a_region_that_does_not_exist_is_refused_with_the_nearest():
    text = "AWS has no region 'us-esat-1'; did you mean us-west-1 or us-east-1? (if it is newer than botocore, set"
    assert region_fault("us-esat-1").startswith(text)
    with pytest.raises(ValueError, match=r"^region: AWS has no region 'us-esat-1'"):
        CloudwatchSink.Config(region="us-esat-1")
    assert region_fault("x") == (
        "AWS has no region 'x' (if it is newer than botocore, set endpoint_url to https://monitoring.x.amazonaws.com)"
    )


def test_with_an_address_any_region_is_taken():
    assert CloudwatchSink.Config(region="mars-1", endpoint_url="http://127.0.0.1:1").region == "mars-1"


def test_the_command_names_the_flag_or_the_file(here, tmp_path):
    done = here("check", "--sink", "cloudwatch", "--region", "us-esat-1")
    assert done.returncode == 2
    assert done.stderr.startswith("chipwatch: --region: AWS has no region 'us-esat-1'; did you mean ")
    file = tmp_path / "chipwatch.toml"
    file.write_text('[sinks.cloudwatch]\nregion = "us-esat-1"\n')
    done = here("check", "--config", file)
    assert done.stderr.startswith(f"chipwatch: {file}: sinks.cloudwatch.region: AWS has no region 'us-esat-1'; ")
