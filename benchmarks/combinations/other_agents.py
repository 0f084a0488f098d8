"""Agents of RLlib, Tianshou, TorchRL, skrl, Flax, Brax, and in ONNX files."""

import numpy as np
import recipes
from common import FOLDER, mlp, perturb, seeded_torch


def rllib(env):
    torch = seeded_torch()
    from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec

    spaces = dict(observation_space=env.observation_space, action_space=env.action_space)
    config = DefaultModelConfig(fcnet_hiddens=[32])
    built = RLModuleSpec(DefaultPPOTorchRLModule, **spaces, model_config=config).build()
    perturb(built)
    built.save_to_path(str(FOLDER / "rllib"))
    module = RLModule.from_checkpoint(str(FOLDER / "rllib"))

    def act(seen, first):
        with torch.no_grad():
            outputs = built.forward_inference({"obs": torch.as_tensor(seen)[None]})["action_dist_inputs"][0].numpy()
        return int(outputs.argmax()) if not env.action_space.shape else outputs[: env.action_space.shape[0]]

    return recipes.policy("RLlib", torch=torch, module=module), act


def tianshou_dqn(env):
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
    from tianshou.utils.net.common import Net

    seeded_torch()
    net = Net(state_shape=env.observation_space.shape, action_shape=2, hidden_sizes=[32])
    agent = DiscreteQLearningPolicy(model=perturb(net), action_space=env.action_space)
    agent.eval()
    return recipes.policy("Tianshou", agent=agent), lambda seen, first: agent.compute_action(seen)


def tianshou_ddpg(env):
    from tianshou.algorithm.modelfree.ddpg import ContinuousDeterministicPolicy
    from tianshou.data import Batch
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.continuous import ContinuousActorDeterministic

    torch = seeded_torch()
    net = Net(state_shape=env.observation_space.shape, hidden_sizes=[32])
    actor = ContinuousActorDeterministic(preprocess_net=net, action_shape=env.action_space.shape)
    agent = ContinuousDeterministicPolicy(actor=perturb(actor), action_space=env.action_space, exploration_noise=None)
    agent.eval()

    def act(seen, first):
        with torch.no_grad():
            return agent.map_action(agent(Batch(obs=seen[None], info={})).act.numpy())[0]

    return recipes.policy("Tianshou", agent=agent), act


def torchrl_actor(env):
    torch = seeded_torch()
    from tensordict.nn import TensorDictModule

    network = mlp(env, bounded=True)
    actor = TensorDictModule(network, in_keys=["observation"], out_keys=["action"])
    return (
        recipes.policy("TorchRL", torch=torch, actor=actor),
        lambda seen, first: actor(observation=torch.as_tensor(seen)[None])[0].detach().numpy(),
    )


def torchrl_qvalue(env):
    torch = seeded_torch()
    from torchrl.modules import QValueActor

    actor = QValueActor(mlp(env), in_keys=["observation"], action_space="categorical")

    def act(seen, first):
        with torch.no_grad():
            action, *_ = actor(observation=torch.as_tensor(seen)[None])
        return int(action)

    return recipes.policy("TorchRL", torch=torch, actor=actor), act


def skrl(env, mixin):
    torch = seeded_torch()
    import skrl.models.torch as models

    kind = getattr(models, f"{mixin}Mixin")
    outputs = env.action_space.shape[0] if env.action_space.shape else int(env.action_space.n)

    class Model(kind, models.Model):
        def __init__(self):
            spaces = dict(observation_space=env.observation_space, action_space=env.action_space)
            models.Model.__init__(self, **spaces, device="cpu")
            kind.__init__(self)
            self.net = torch.nn.Sequential(
                torch.nn.Linear(env.observation_space.shape[0], 32), torch.nn.Tanh(), torch.nn.Linear(32, outputs)
            )

        def compute(self, inputs, role=""):
            return self.net(inputs["observations"]), {}

    model = perturb(Model(), scale=0.5)

    def act(seen, first):
        with torch.no_grad():
            action = model.act({"observations": torch.as_tensor(seen)[None]}, role="policy")[0][0]
        return action.numpy() if env.action_space.shape else int(action)

    return recipes.policy("skrl", torch=torch, model=model), act


def flax(env):
    import jax
    from flax import linen

    class Network(linen.Module):
        @linen.compact
        def __call__(self, seen):
            return linen.Dense(int(env.action_space.n))(linen.tanh(linen.Dense(32)(seen)))

    network = Network()
    params = network.init(jax.random.key(0), np.zeros((1, *env.observation_space.shape), np.float32))
    forward = jax.jit(network.apply)
    return (
        recipes.policy("Flax and Brax", jax=jax, network=network, params=params),
        lambda seen, first: int(np.argmax(forward(params, seen[None])[0])),
    )


def brax(env):
    """An agent of Brax's PPO, in a Gymnasium environment."""
    import jax
    from brax.training.agents.ppo import networks as ppo

    agent = ppo.make_ppo_networks(env.observation_space.shape[0], env.action_space.shape[0])
    normaliser = None
    params = (normaliser, agent.policy_network.init(jax.random.key(1)))
    inference = jax.jit(ppo.make_inference_fn(agent)(params, deterministic=True))
    key = jax.random.key(0)
    return (
        lambda observations: inference(observations, key)[0],
        lambda seen, first: np.asarray(inference(seen[None], key)[0])[0],
    )


def onnx(env):
    torch = seeded_torch()
    network, path = mlp(env), FOLDER / f"{env.spec.id}.onnx"
    rows = torch.zeros(2, *env.observation_space.shape)
    dynamic = {"dynamic_shapes": ({0: torch.export.Dim("rows")},), "dynamo": True, "verbose": False}
    torch.onnx.export(network, (rows,), path, input_names=["observation"], output_names=["action"], **dynamic)
    discrete = not env.action_space.shape

    def act(seen, first):
        with torch.no_grad():
            output = network(torch.as_tensor(seen, dtype=torch.float32)[None])[0]
        return int(output.argmax()) if discrete else output.numpy()

    return path, act
