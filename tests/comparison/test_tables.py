"""Files of recorded returns: each format as its tool writes it, and damaged files."""

import io
import json
import zipfile

import numpy as np
import pytest

from rido.comparison.tables import ResultsError, read_returns


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "results"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize(
    "text, returns, seeds",
    [
        ("return,seed\n1.5,7\n-2,8\n", [1.5, -2], ("7", "8")),
        ("Seed; Reward\r\n7.0; 1e3\r\n8; 2\r\n", [1000, 2], ("7", "8")),
        ("episode\tscore\n0\t4\n1\t5\n\n", [4, 5], None),
        ("4\n5\n6\n", [4, 5, 6], None),
        ("anything\n4\n5\n", [4, 5], None),
        ('\ufeffsuccess,task\nTrue,"a\nb"\nfalse,c\n1,d\n', [1, 0, 1], None),
        ("reward,success\n3,1\n4,0\n", [3, 4], None),
        ("[1, 2.5, 3]", [1, 2.5, 3], None),
        (
            '[{"seed": 12345678901234567890, "return": 1}, {"seed": "b", "return": 2}]',
            [1, 2],
            ("12345678901234567890", "b"),
        ),
        ('[{"success": true, "seed": null}, {"success": false, "seed": null}]', [1, 0], None),
    ],
)
def test_csv_and_json_are_told_by_their_content(write, text, returns, seeds):
    found = read_returns(write(text))
    np.testing.assert_array_equal(found.returns, returns)
    assert found.seeds == seeds
    assert found.success == ("success" in text and "reward" not in text)


def test_the_eval_info_of_lerobot_is_read_with_its_seeds(write):
    episodes = [
        {"episode_ix": i, "sum_reward": 3.0 * i, "max_reward": 1.0, "success": i == 2, "seed": 1000 + i}
        for i in range(4)
    ]
    info = {"per_episode": episodes, "aggregated": {"avg_sum_reward": 4.5, "pc_success": 25.0, "eval_s": 1.0}}
    found = read_returns(write(json.dumps(info, indent=2)))
    assert found.returns.tolist() == [0, 0, 1, 0] and found.success
    assert found.seeds == ("1000", "1001", "1002", "1003")


def test_the_eval_info_of_several_tasks_is_paired_by_task_and_episode(write):
    def task(number, successes):
        metrics = {"sum_rewards": [1.0] * len(successes), "max_rewards": [1.0] * len(successes), "successes": successes}
        return {"task_group": "libero_10", "task_id": number, "metrics": metrics}

    info = {"per_task": [task(3, [True, False]), task(0, [True])], "per_group": {}, "overall": {"pc_success": 66.7}}
    found = read_returns(write(json.dumps(info)))
    assert found.returns.tolist() == [1, 0, 1] and found.success
    assert found.seeds == ("libero_10/3/0", "libero_10/3/1", "libero_10/0/0")


def test_monitor_files_and_evaluations_of_stable_baselines3_are_read(tmp_path):
    pytest.importorskip("stable_baselines3")
    import gymnasium as gym
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import EvalCallback
    from stable_baselines3.common.monitor import Monitor

    env = Monitor(gym.make("CartPole-v1"), str(tmp_path / "train"), reset_keywords=("seed",))
    for seed in (5, 6, 5):
        env.reset(seed=seed)
        while not env.step(1)[2]:
            pass
    env.close()
    found = read_returns(tmp_path / "train.monitor.csv")
    assert found.returns.tolist() == env.get_episode_rewards()
    assert found.seeds == ("5", "6", "5")

    callback = EvalCallback(  # which draws its starts as it likes
        Monitor(gym.make("CartPole-v1")), n_eval_episodes=3, eval_freq=16, log_path=str(tmp_path), verbose=0
    )
    PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, n_epochs=1, seed=0, device="cpu").learn(32, callback)
    found = read_returns(tmp_path / "evaluations.npz")
    assert found.returns.tolist() == callback.evaluations_results[1]
    assert found.seeds is None


def _npz(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def _lying_npz():
    """An array whose header says that it has 80 TB."""
    array = io.BytesIO()
    np.lib.format.write_array_header_1_0(array, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 10)})
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("results.npy", array.getvalue())
    return file.getvalue()


@pytest.mark.parametrize(
    "content, message",
    [
        ("return,seed\n1,7\nx,8\n", "line 3: expected a finite number, got 'x'"),
        ("return\n1\nnan\n", "line 3: expected a finite number, got 'nan'"),
        ("return,seed\n1,7\n2,\n", "line 3: expected a seed, got none"),
        ("return,seed\n1,7\n2\n", "line 3: expected 2 columns, got 1"),
        ("success\n1\n0.5\n", "line 3: expected true, false, 0 or 1, got '0.5'"),
        ("a,b\n1,7\n", "line 1: expected a column named return or reward or r or score or success, got a, b"),
        ('"a\nb",c\n1,2\n', "line 2: expected a column named .* got a b, c"),
        ("1,7\n2,8\n", "line 1: expected a column named return .*, got 1, 7"),
        ('#{"t_start": 1.0, "env_id": "x"}\nr,l,t\n1,2,3\n?,2,3\n', r"line 4: expected a finite number, got '\?'"),
        ("return,seed\n1,7\n2,7\n", "expected a seed of each episode, got 7 for all: drop or rename it"),
        ("return\n1\n", "expected 2 to 1,000,000 episodes, got 1"),
        ("", "expected CSV, JSON or evaluations.npz, got an empty file"),
        (b"\xff\xfe\x00", "expected CSV, JSON or evaluations.npz, got a binary file"),
        ("return\n" + "1" * 200_000 + "\n2\n", "line 2: expected CSV, got an error: field larger"),
        ("[1,\n2,,]", "line 2: expected JSON, got an error"),
        ("[" * 100_000, "expected JSON of numbers"),
        ("[]", "expected a list of returns, .* got an empty list"),
        ("[1, NaN]", "episode 1: expected a finite number, got nan"),
        ("[1, [2]]", r"episode 1: expected a finite number, got \[2\]"),
        ('[{"return": 1}, {"score": 1}]', "episode 1: expected an object with return"),
        ('{"a": 1}', "expected a list of returns, .* per_task, got an object with a"),
        ('{"per_task": [{"task_id": 0}]}', r"per_task\[0\]: expected task_group, task_id and metrics"),
        (_npz(other=[1.0]), "expected an npz with an array named results, got an error"),
        (_npz(results=[1.0, 2.0]), r"expected results of shape \(evaluations, episodes\), got float64 of shape \(2,\)"),
        (
            _npz(results=np.array([[1, None]])),
            "expected an npz .* results, got an error: cannot create an OBJECT array",
        ),
        (_lying_npz(), "expected an npz with an array named results, got an error"),
        (b"PK\x03\x04 nothing", "expected an npz with an array named results, got an error"),
    ],
)
def test_other_files_end_in_one_line_that_names_file_line_and_what_was_expected(write, content, message):
    path = write(content)
    with pytest.raises(ResultsError, match=f"^{path}: {message}") as caught:
        read_returns(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_a_file_that_is_missing_or_too_large_is_named(write, tmp_path, monkeypatch):
    with pytest.raises(ResultsError, match=f"^{tmp_path}/none.csv: expected a file of results"):
        read_returns(tmp_path / "none.csv")
    monkeypatch.setattr("rido.comparison.tables._MOST_BYTES", 2**20)
    with pytest.raises(ResultsError, match="results: expected at most 1 MiB, got 1,500,000 bytes"):
        read_returns(write("1\n" * 750_000))
    with pytest.raises(ResultsError, match="results: expected arrays of at most 1 MiB, got 1,600,128 bytes"):
        read_returns(write(_npz(results=np.zeros((2, 100_000)))))
