"""The files for Kubernetes and Ray Train that as_script writes, held against what
JobSet and Ray publish.
"""

import ast
import json

import jsonschema
import pytest
import yaml

from exercises.nb15.rank_script import as_script
from labkit.core.paths import ROOT

# README.md beside it says where it is from
SCHEMA = ROOT / "tests" / "data" / "jobset_v1alpha2.json"
# docs.ray.io/en/latest/train/api, of Ray 2.60: what the classes of the script take.
RAY = {
    "TorchTrainer": (
        "train_loop_per_worker train_loop_config torch_config scaling_config run_config"
        " datasets dataset_config validation_config metadata resume_from_checkpoint"
    ),
    "ScalingConfig": (
        "trainer_resources num_workers use_gpu resources_per_worker placement_strategy"
        " accelerator_type use_tpu topology label_selector"
    ),
    "RunConfig": (
        "name storage_path storage_filesystem failure_config checkpoint_config"
        " callbacks worker_runtime_env"
    ),
    "FailureConfig": "max_failures fail_fast controller_failure_limit",
}


def tenth_of_a_Sum_(x=1):  # noqa: N802
    text = "#: | 'a' \"b\" {x}\ttab é"

    return x, text


def strict(schema):
    """A schema that refuses fields it doesn't name, as the server does when kubectl
    asks it to validate.
    """
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    named = (
        isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    )
    return {name: strict(part) for name, part in schema.items()} | (
        {"additionalProperties": False} if named else {}
    )


def validate(job):
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    # the server's own
    schema["properties"]["metadata"] = {"type": "object", "required": ["name"]}
    jsonschema.Draft202012Validator(strict(schema)).validate(job)


@pytest.fixture
def written(tmp_path):
    return lambda **options: as_script(
        tenth_of_a_Sum_,
        tmp_path,
        **{"nproc": 8, "nnodes": 3, "restarts": 4, "hours": 2} | options,
    )


@pytest.mark.parametrize("gpus", [True, False])
def test_the_jobset_fits_the_published_schema_and_says_the_job(written, gpus):
    scripts = written(gpus=gpus)
    program, job = yaml.safe_load_all(scripts.jobset.read_text(encoding="utf-8"))
    validate(job)
    assert (program["apiVersion"], program["kind"]) == ("v1", "ConfigMap")
    assert program["data"] == {"train.py": scripts.train.read_text(encoding="utf-8")}
    assert job["spec"]["failurePolicy"] == {"maxRestarts": 4}
    (nodes,) = job["spec"]["replicatedJobs"]
    of_job = nodes["template"]["spec"]
    assert (
        of_job["parallelism"],
        of_job["completions"],
        of_job["activeDeadlineSeconds"],
    ) == (3, 3, 7200)
    (container,) = of_job["template"]["spec"]["containers"]
    assert container["command"] == [
        "torchrun",
        "--nnodes=3",
        "--nproc-per-node=8",
        "--max-restarts=4",
        "--rdzv-backend=c10d",
        "--rdzv-id=train-tenth-of-a-sum",
        "--rdzv-endpoint=train-tenth-of-a-sum-node-0-0.train-tenth-of-a-sum:29500",
        "/program/train.py",
    ]
    assert container.get("resources") == (
        {"limits": {"nvidia.com/gpu": 8}} if gpus else None
    )
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {
        volume["name"]: volume for volume in of_job["template"]["spec"]["volumes"]
    }
    assert mounts.keys() == volumes.keys()
    assert (
        volumes["program"]["configMap"]["name"]
        == program["metadata"]["name"]
        == job["metadata"]["name"]
    )


def test_the_ray_script_passes_only_what_ray_documents(written):
    tree = ast.parse(written().ray.read_text(encoding="utf-8"))
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in RAY
    ]
    assert {call.func.id for call in calls} == set(RAY)
    for call in calls:
        assert {keyword.arg for keyword in call.keywords} <= set(
            RAY[call.func.id].split()
        )
    given = {
        keyword.arg: ast.unparse(keyword.value)
        for call in calls
        for keyword in call.keywords
    }
    assert (given["num_workers"], given["use_gpu"], given["max_failures"]) == (
        "24",
        "True",
        "4",
    )
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == set(RAY)
