"""The paper's domains are registered by ``import rido``, before Gymnasium or after it, which it does not import."""

import subprocess
import sys

import pytest

from rido.simulators.envs import ENV_IDS


@pytest.mark.parametrize(
    "imports",
    [
        "import rido; assert 'gymnasium' not in sys.modules; import gymnasium",
        "import gymnasium, rido",
        "import rido; from gymnasium.envs import registration; import gymnasium",
    ],
)
def test_registered_by_importing_rido(imports):
    code = f"import sys; {imports}; print(*(type(gymnasium.make(name).unwrapped).__name__ for name in {ENV_IDS}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.split() == ["LQGEnv", "NavigationEnv", "FirstStepEnv", "LastStepEnv"]


def test_the_command_line_needs_no_horizon():
    command = [sys.executable, "-m", "rido", "evaluate", "rido/LQG-v0", "--budget", "5000", "--gamma", "0.9"]
    done = subprocess.run([*command, "--seed", "1"], capture_output=True, text=True, check=True, timeout=600)
    assert "5,000 transitions" in done.stdout and "of up to 66 steps" in done.stdout
