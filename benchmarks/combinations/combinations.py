"""Which environments are evaluated with which policies."""

from functools import partial

import functions
import other_agents
import sb3_agents
import torch_agents

COMBINATIONS = [
    ("CartPole-v1", "function of a batch", functions.batch_function, {}),
    ("CartPole-v1", "function of one observation", functions.one_function, {}),
    ("CartPole-v1", "function that draws", functions.drawing_function, {"deterministic": False}),
    ("Pendulum-v1", "function of a batch", functions.damping, {}),
    ("HalfCheetah-v5", "function of a batch", functions.damping, {}),
    ("FrozenLake-v1", "function of a batch", functions.by_table, {}),
    ("Reach", "function of a batch", functions.towards_the_goal, {}),
    ("Levers", "function of a batch", functions.nearest_lever, {}),
    ("Levers", '"random"', functions.random_actions, {}),
    ("ALE/Phoenix-v5, memory", "function of a batch", functions.by_memory, {}),
    ("MiniGrid-Empty-Random-6x6", "function of one observation", functions.by_direction, {}),
    ("CartPole-v1", "scikit-learn's predict", functions.scikit_learn, {}),
    ("CartPole-v1", "SB3 DQN", partial(sb3_agents.sb3, algorithm="DQN"), {}),
    ("Pendulum-v1", "SB3 SAC, zip", partial(sb3_agents.sb3, algorithm="SAC", zipped=True), {}),
    (
        "Hopper-v5",
        "SB3 PPO, zip, VecNormalize",
        partial(sb3_agents.sb3, algorithm="PPO", zipped=True, normalised=True, n_steps=256),
        {},
    ),
    ("Reach", "SB3 PPO, MultiInputPolicy", partial(sb3_agents.sb3, algorithm="PPO", kind="MultiInputPolicy"), {}),
    (
        "Levers",
        "SB3 PPO, sampled",
        partial(sb3_agents.sb3, algorithm="PPO", deterministic=False),
        {"deterministic": False},
    ),
    (
        "MiniGrid-Empty-Random-6x6, flat",
        "SB3 PPO, sampled",
        partial(sb3_agents.sb3, algorithm="PPO", deterministic=False),
        {"deterministic": False},
    ),
    (
        "ALE/Phoenix-v5, pixels",
        "SB3 PPO, CnnPolicy, sampled",
        partial(sb3_agents.sb3, algorithm="PPO", kind="CnnPolicy", deterministic=False, n_steps=8, batch_size=8),
        {"deterministic": False},
    ),
    ("CartPole-v1", "SB3 PPO on the hub", partial(sb3_agents.sb3, algorithm="PPO", hub=True), {}),
    ("HalfCheetah-v5", "sb3-contrib TQC", partial(sb3_agents.sb3, algorithm="TQC", buffer_size=100), {}),
    ("CartPole-v1", "sb3-contrib RecurrentPPO, zip", sb3_agents.recurrent_ppo, {}),
    (
        "Pendulum-v1",
        "sb3-contrib RecurrentPPO, sampled",
        partial(sb3_agents.recurrent_ppo, deterministic=False),
        {"deterministic": False},
    ),
    (
        "Reach",
        "sb3-contrib RecurrentPPO, MultiInputLstmPolicy",
        partial(sb3_agents.recurrent_ppo, kind="MultiInputLstmPolicy"),
        {},
    ),
    ("CartPole-v1", "nn.Module", torch_agents.documented_module, {}),
    (
        "CartPole-v1",
        "nn.Module, distribution, sampled",
        partial(torch_agents.documented_module, number=1),
        {"deterministic": False},
    ),
    ("Pendulum-v1", "nn.Module", torch_agents.module, {}),
    ("HalfCheetah-v5", "nn.Module", torch_agents.module, {}),
    ("Reach", "nn.Module", torch_agents.dictionary_module, {}),
    ("CartPole-v1", "nn.Module with a GRU", torch_agents.gru, {}),
    ("CartPole-v1", "CleanRL ppo.py", torch_agents.cleanrl_ppo, {}),
    (
        "CartPole-v1",
        "CleanRL ppo.py, sampled",
        partial(torch_agents.cleanrl_ppo, sampled=True),
        {"deterministic": False},
    ),
    ("HalfCheetah-v5", "CleanRL ppo_continuous_action.py", torch_agents.cleanrl_continuous, {}),
    ("ALE/Phoenix-v5, pixels", "CleanRL ppo_atari.py, sampled", torch_agents.cleanrl_atari, {"deterministic": False}),
    ("CartPole-v1", "RLlib RLModule", other_agents.rllib, {}),
    ("Pendulum-v1", "RLlib RLModule", other_agents.rllib, {}),
    ("CartPole-v1", "Tianshou DQN", other_agents.tianshou_dqn, {}),
    ("Pendulum-v1", "Tianshou DDPG", other_agents.tianshou_ddpg, {}),
    ("CartPole-v1", "TorchRL QValueActor", other_agents.torchrl_qvalue, {}),
    ("Pendulum-v1", "TorchRL TensorDictModule", other_agents.torchrl_actor, {}),
    ("CartPole-v1", "skrl CategoricalMixin, sampled", partial(other_agents.skrl, mixin="Categorical"), {}),
    ("Pendulum-v1", "skrl DeterministicMixin", partial(other_agents.skrl, mixin="Deterministic"), {}),
    ("CartPole-v1", "Flax", other_agents.flax, {}),
    ("Pendulum-v1", "Brax PPO", other_agents.brax, {}),
    ("CartPole-v1", "ONNX", other_agents.onnx, {}),
    ("Pendulum-v1", "ONNX", other_agents.onnx, {}),
]
