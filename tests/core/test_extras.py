"""Which installed packages seem to register an environment."""

from importlib import metadata

import pytest

from rido.core import extras


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs packages that need Gymnasium, given the source of each."""
    found = metadata.distributions
    monkeypatch.setattr(extras.metadata, "distributions", lambda: found(path=[str(tmp_path)]))

    def make(**sources):
        for name, source in sources.items():
            about = tmp_path / f"{name}-1.dist-info"
            for folder in (tmp_path / name, about):
                folder.mkdir()
            (tmp_path / name / "__init__.py").write_text(source)
            (about / "METADATA").write_text(f"Name: {name}\nVersion: 1\nRequires-Dist: gymnasium\n")
            (about / "RECORD").write_text(f"{name}/__init__.py,,\n")

    return make


def test_only_packages_whose_source_has_the_id_are_named_whatever_their_quotes(install):
    install(
        single="import gymnasium\ngymnasium.register(id='Thing-v0')\n",
        double='import gymnasium\ngymnasium.register(id="Thing-v1")\n',
        other='import gymnasium\ngymnasium.register(id="Other-v0")\n',
        silent='NAME = "Thing-v0"\n',
    )
    assert extras.packages_that_register("Thing-v0") == ["double", "single"]
    assert extras.packages_that_register("Nothing-v0") == []


def test_the_id_itself_is_likelier_than_its_namespace(install):
    install(
        near='import gymnasium\ngymnasium.register(id="lab/Maze-v0")\n',
        far='import gymnasium\ngymnasium.register(id="lab/Hill-v0")\n',
    )
    assert extras.packages_that_register("lab/Maze-v0") == ["near"]
    assert extras.packages_that_register("lab/Unknown-v0") == ["far", "near"]
