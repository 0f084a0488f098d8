"""What environments are called in results, and the fingerprints by which a run file knows them again."""

from __future__ import annotations

from typing import Any

from rido.simulators.base import describe
from rido.storage.fingerprint import fingerprint, identify


def environment_name(env: Any) -> str:
    """Returns what an environment is called in results."""
    if isinstance(env, str):
        return env
    if isinstance(getattr(env, "name", None), str):
        return str(env.name)
    own = getattr(env, "__qualname__", type(env).__name__)
    return str(getattr(getattr(env, "spec", None), "id", own))


def identities(env: Any, simulator: Any) -> dict[str, str]:
    """Returns the fingerprints by which a run file knows its run again.

    Args:
        env: what evaluate() was given.
        simulator: the simulator; the same object if it is the user's own.
    """
    if simulator is env:
        return {"simulator_fingerprint": identify("simulator", env)}
    return {
        "policy_fingerprint": identify("policy", describe(simulator).load_policy()),
        "environment_fingerprint": environment_fingerprint(env),
    }


def environment_fingerprint(env: Any) -> str:
    """Returns what tells environments of one name apart, beside the arguments of an id."""
    if isinstance(env, str):
        return fingerprint(env)
    if not (hasattr(env, "step") and hasattr(env, "spec")):  # a function that makes it, or an environment in JAX
        return identify("env", env)
    # An environment changes while it is used, so it is known by what made it and not by its content.
    spec, given = getattr(env, "spec", None), getattr(env, "fingerprint", getattr(env, "name", None))
    if isinstance(given, str):
        return given
    if spec is None:
        raise ValueError(
            f"env must be an id or a function that makes it where a run is recorded, got a {type(env).__qualname__}: "
            "give a function, or the environment an attribute name, another one for each env"
        )
    wrappers = [env]
    while hasattr(wrappers[-1], "env"):
        wrappers.append(wrappers[-1].env)
    return fingerprint(spec.id, spec.kwargs, spec.additional_wrappers, [type(part) for part in wrappers])
