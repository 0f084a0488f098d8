"""Workers run the code of this process, or are told from those that do."""

import pickle
import sys

import pytest

import rido
from remotefaults import swamp
from rido.simulators.parallel import sources


def test_a_module_of_the_user_is_known_by_its_content():
    with swamp() as (module, folder):
        known, theirs = {}, sources.digests(())
        assert module.__name__ in theirs and sources.different(theirs, (), known) is None
        (folder / "here" / f"{module.__name__}.py").write_text("edited = True")
        edited = sources.digests(())
        assert sources.different(theirs, (), known) is None  # this process is what it was when it was asked first
        assert sources.different(edited, (), known) == module.__name__
        assert sources.different({"of_a_node_alone": "1"}, (), known) is None


def test_rido_is_compared_always_and_an_installed_package_where_it_is_named(monkeypatch):
    import gymnasium

    assert "gymnasium" not in sources.digests(())
    theirs = sources.digests(("gymnasium",))
    assert theirs["gymnasium"] == gymnasium.__version__ and "gymnasium.core" not in theirs
    assert "rido.simulators.rollout" in theirs and "json" not in theirs
    assert sources.different(theirs | {"rido.simulators.rollout": "0"}, (), {}) == "rido.simulators.rollout"
    monkeypatch.setattr(gymnasium, "__version__", "0.1")
    assert sources.different(theirs, ("gymnasium",), {}) == "gymnasium"
    assert sources.different(None, (), {}) == "rido"  # one that is too old to tell


def test_another_release_of_rido_is_named_by_itself(monkeypatch):
    content = pickle.dumps(sources.SameVersion())
    pickle.loads(content)
    release = rido.__version__
    monkeypatch.setattr(rido, "__version__", "0.0.9")
    with pytest.raises(ValueError, match=f"workers must have rido {release} as this process, got 0.0.9"):
        pickle.loads(content)


def test_packages_are_found_in_what_is_sent():
    from gymnasium.envs.classic_control import PendulumEnv

    content = pickle.dumps([PendulumEnv, sys.path, "numpy.random:Generator"])
    assert {"gymnasium", "numpy"} <= sources.packages_of([content])
    assert "sys" not in sources.packages_of([content])


def test_a_package_that_only_a_worker_has_made_is_compared_too(monkeypatch):
    monkeypatch.delitem(sys.modules, "cloudpickle")
    theirs = {"cloudpickle": "0.1"}
    assert sources.different(theirs, {"cloudpickle"}, {}) == "cloudpickle"
    import cloudpickle

    assert sources.different({"cloudpickle": cloudpickle.__version__}, {"cloudpickle"}, {}) is None
