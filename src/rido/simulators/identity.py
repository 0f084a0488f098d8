"""Names of environments in results, and the fingerprints by which a run file recognises its run."""

from typing import Any

from rido.record.fingerprint import content_of, fingerprint, identify, source_fingerprint
from rido.simulators.base import Simulator
from rido.simulators.factory import environment_kind


def environment_name(env: Any) -> str:
    """Returns the name of an environment in results."""
    if isinstance(env, str):
        return env
    if isinstance(getattr(env, "name", None), str):
        return str(env.name)
    own = getattr(env, "__qualname__", type(env).__name__)
    return str(getattr(getattr(env, "spec", None), "id", own))


def engine(simulator: Simulator) -> str:
    """Returns the name by which a run file knows what simulates; see :class:`rido.simulators.base.Capabilities`."""
    return simulator.capabilities.engine or type(simulator).__qualname__


def environment_fingerprint(env: Any) -> str:
    """Returns a digest that tells environments of one name apart (an id's arguments are recorded elsewhere)."""
    kind = environment_kind(env)
    if kind == "id":
        return _id_fingerprint(env)
    if kind != "gymnasium":
        return identify("env", env)
    # An environment changes while it is used, so its identity is how it was made and not its content.
    spec, given = env.spec, getattr(env, "fingerprint", getattr(env, "name", None))
    if isinstance(given, str):
        return given
    if spec is None:
        raise ValueError(
            f"env must be an id or a function that makes it where a run is recorded, got a {type(env).__qualname__}: "
            "pass a function, or set an attribute name on the environment, a different one for each env"
        )
    wrappers = [env]
    while hasattr(wrappers[-1], "env"):
        wrappers.append(wrappers[-1].env)
    from rido.simulators.wrappers import statistics  # not by `import rido`: it needs Gymnasium

    made = (spec.id, spec.kwargs, spec.additional_wrappers, [type(part) for part in wrappers])
    return fingerprint(*made, *statistics(env))


def _id_fingerprint(env_id: str) -> str:
    """Returns a digest of what an id stands for: its arguments, and the code of its entry points and wrappers."""
    from rido.simulators.opening import find_spec  # not by `import rido`: it needs Gymnasium

    try:
        spec = find_spec(env_id)
    except ValueError:  # an id of another simulator
        return fingerprint(env_id)
    parts = [(spec.entry_point, spec.kwargs), (spec.vector_entry_point, {})]
    parts += [(wrapper.entry_point, wrapper.kwargs or {}) for wrapper in spec.additional_wrappers]
    code = [source_fingerprint(point) if isinstance(point, str) else content_of("env", point) for point, _ in parts]
    return fingerprint(env_id, code, [content_of("env", dict(arguments)) for _, arguments in parts])
