"""Every type of file that holds an agent works wherever a policy is taken."""

import pytest

import rido
from agentfiles import agent_file
from helpers import needs
from hubserver import serving, used
from rido.cli.console import may_run_code
from rido.policies.files import named_policies
from rido.policies.loaders import LOADERS

SETTINGS = dict(budget=600, gamma=0.9, horizon=20, seed=0)


@pytest.fixture(params=LOADERS)
def path(request, tmp_path):
    return agent_file(tmp_path, request.param)


@pytest.fixture
def alone(path):
    return rido.evaluate("Pendulum-v1", path, **SETTINGS)


def same(found, alone):
    return (found.value, found.transitions) == (alone.value, alone.transitions)


def test_as_text_and_in_workers(path, alone):
    assert same(rido.evaluate("Pendulum-v1", str(path), **SETTINGS), alone) and alone.policy.endswith(path.name)
    assert same(rido.evaluate("Pendulum-v1", path, workers=2, **SETTINGS), alone)


@pytest.mark.parametrize("workers", [1, 2])
def test_in_a_folder_of_checkpoints(path, workers):
    second = path.with_stem("second")
    second.write_bytes(path.read_bytes())
    assert named_policies(path.parent) == {"agent": path, "second": second}
    found = rido.compare("Pendulum-v1", path.parent, workers=workers, **SETTINGS)
    assert found.difference("agent", "second").value == 0


def test_on_the_hub(path, alone, tmp_path):
    needs("huggingface_hub", "hub")
    with serving() as hub, used(hub, tmp_path / "cache", seconds=10):
        hub.push("me/agent", {path.name: path.read_bytes(), "README.md": b"about"})
        for workers in (1, 2):
            found = rido.evaluate("Pendulum-v1", "hf:me/agent", workers=workers, **SETTINGS)
            assert same(found, alone) and found.policy == "hf:me/agent"


def test_without_running_code(path):
    assert not may_run_code(str(path), trust=False)


def test_a_missing_file_is_said_to_be_missing(path):
    path.unlink()
    with pytest.raises(ValueError, match=f"policy must be the path of an existing .*{path.name}"):
        rido.evaluate("Pendulum-v1", path, **SETTINGS)
