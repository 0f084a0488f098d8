"""A generator whose numbers come from a point draws from numpy's distributions, and looks like numpy's."""

import copy

import numpy as np
import pytest
from scipy import stats
from scipy.stats import qmc

from rido.simulators.points import PointGenerator

POINTS = qmc.Sobol(8, rng=1).random(1024)
ALMOST_ONE = 1 - 2.0**-53
DRAWS = {
    "random": lambda g: g.random(),
    "random, float32": lambda g: g.random(4, dtype=np.float32)[3],
    "random, out": lambda g: g.random(out=np.zeros((2, 2)))[1, 0],
    "uniform": lambda g: g.uniform(-3, 5),
    "uniform, arrays": lambda g: g.uniform([0.0, -1.0], [[1.0], [4.0]])[1, 1],
    "standard_normal": lambda g: g.standard_normal(3)[2],
    "standard_normal, float32, out": lambda g: g.standard_normal(out=np.zeros(3, np.float32), dtype=np.float32)[1],
    "normal": lambda g: g.normal(2.0, 0.5),
    "normal, arrays": lambda g: g.normal([0.0, 7.0], 3.0, size=(2, 2))[0, 1],
    "multivariate_normal": lambda g: g.multivariate_normal([1.0, 0.0], [[1.0, 0.5], [0.5, 2.0]])[0],
    "exponential": lambda g: g.exponential(0.3, size=2)[1],
    "standard_exponential": lambda g: g.standard_exponential(),
    "integers": lambda g: g.integers(3, 12),
    "integers, high alone": lambda g: g.integers(6, size=3)[2],
    "integers, endpoint": lambda g: g.integers(-2, 2, endpoint=True),
    "integers, arrays": lambda g: g.integers([0, 10], [5, 30], dtype=np.uint8)[1],
    "integers, a seed": lambda g: g.integers(2**63 - 1),
    "choice": lambda g: g.choice(13),
    "choice, one without replacement": lambda g: g.choice([3, 5, 8, 9], replace=False),
    "choice, several without replacement": lambda g: g.choice(9, 4, replace=False)[3],
    "choice, probabilities": lambda g: g.choice([1, 2, 4], size=2, p=[0.2, 0.5, 0.3])[1],
    "choice, array": lambda g: g.choice(np.arange(6).reshape(3, 2))[1],
    "gamma, which has no inverse here": lambda g: g.gamma(2.0),
    "permutation": lambda g: g.permutation(7)[2],
}


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_have_numpys_distributions(name):
    """Kolmogorov-Smirnov, 1,024 points against 6,000 numbers of numpy: a false alarm in at most 1 of 10,000 draws."""
    numpys = np.random.default_rng(0)
    draw = DRAWS[name]
    expected = [draw(numpys) for _ in range(6000)]
    found = [draw(PointGenerator(point, seed)) for seed, point in enumerate(POINTS)]
    assert stats.ks_2samp(found, expected).pvalue > 1e-4


EXPLICIT = [name for name in DRAWS if not any(word in name for word in ("seed", "several", "gamma", "permut", "multi"))]


@pytest.mark.parametrize("name", EXPLICIT)
def test_numbers_grow_with_their_coordinate(name):
    """So near points give near starts; the seed changes nothing."""
    found = [
        float(DRAWS[name](PointGenerator(np.full(8, u), seed))) for seed, u in enumerate(np.linspace(0, 1, 50)[:-1])
    ]
    assert found == sorted(found) and len(set(found)) > 1


CALLS = {
    "random": [{}, {"size": ()}, {"size": 3}, {"size": (2, 0)}, {"dtype": np.float32}, {"dtype": "f4", "size": (1, 2)}],
    "uniform": [{}, {"size": ()}, {"low": np.array(1.0), "high": 2}, {"low": [1, 2], "high": [[3], [4]]}],
    "normal": [{}, {"size": ()}, {"loc": [1, 2], "size": (3, 2)}, {"scale": np.zeros((0, 2))}],
    "standard_normal": [{}, {"size": ()}, {"size": (2, 3), "dtype": np.float32}],
    "exponential": [{}, {"scale": [1, 2]}, {"size": np.int32(3)}],
    "standard_exponential": [{}, {"method": "inv", "size": 2}],
    "integers": [
        {"low": 5},
        {"low": 5, "size": ()},
        {"low": 2, "dtype": bool},
        {"low": 5, "dtype": int},
        {"low": -128, "high": 127, "endpoint": True, "dtype": np.int8},
        {"low": [1, 2], "high": [[3], [4]], "dtype": np.uint16},
        {"low": 0, "high": 2**64, "dtype": np.uint64},
        {"low": 2**63 + 1, "high": 2**63 + 9, "dtype": np.uint64},
        {"low": np.zeros(0), "high": 2},
    ],
    "choice": [{"a": 5}, {"a": ["east", "west"]}, {"a": 5, "size": (2, 2)}, {"a": np.eye(3), "axis": 1}],
}


@pytest.mark.parametrize(("method", "arguments"), [(name, each) for name, calls in CALLS.items() for each in calls])
@pytest.mark.parametrize("u", [0.0, 0.3, ALMOST_ONE])
def test_types_shapes_and_bounds_are_numpys(method, arguments, u):
    expected = getattr(np.random.default_rng(1), method)(**arguments)
    for dimensions in (0, 1, 64):  # used up before, within and after the call
        found = getattr(PointGenerator(np.full(dimensions, u), 1), method)(**arguments)
        assert type(found) is type(expected) and np.shape(found) == np.shape(expected)
        assert getattr(found, "dtype", None) == getattr(expected, "dtype", None)
        if method == "choice":
            continue
        assert np.isfinite(found).all()
        if method == "integers":
            low, high = (0, arguments["low"]) if "high" not in arguments else (arguments["low"], arguments["high"])
            assert np.all(found >= np.asarray(low)) and np.all(
                found < np.asarray(high) + arguments.get("endpoint", False)
            )
        if method == "random":
            assert np.all(found >= 0) and np.all(found < 1)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("integers", {"low": 3, "high": 3}),
        ("integers", {"low": 0, "high": 300, "dtype": np.uint8}),
        ("uniform", {"low": 0, "high": np.inf}),
        ("uniform", {"low": [1, 2], "high": [1, 2, 3]}),
        ("normal", {"scale": -1}),
        ("random", {"dtype": np.int64}),
        ("random", {"size": 3, "out": np.zeros(2)}),
        ("choice", {"a": 0}),
        ("choice", {"a": 2, "p": [0.5, 0.6]}),
    ],
)
def test_wrong_arguments_raise_what_numpy_raises(method, arguments):
    with pytest.raises(Exception) as expected:
        getattr(np.random.default_rng(1), method)(**arguments)
    with pytest.raises(type(expected.value)) as found:
        getattr(PointGenerator([0.5], 1), method)(**arguments)
    assert str(found.value) == str(expected.value)


def test_each_number_takes_the_next_coordinate_and_the_rest_is_of_the_seed():
    generator = PointGenerator([0.1, 0.2, 0.3, 0.4, 0.5], seed=7)
    assert generator.random() == 0.1 and generator.random((2,)).tolist() == [0.2, 0.3]
    assert generator.drawn == 3 and generator.used == "some"
    last = generator.uniform(0, 1, size=(2, 2))
    assert last[0].tolist() == [0.4, 0.5]
    assert generator.drawn == 7 and generator.used == "all"
    again, other = PointGenerator([0.9, 0.8, 0.3, 0.4, 0.5], seed=7), PointGenerator([0.4, 0.5], seed=8)
    again.random()
    again.random((2,))
    np.testing.assert_array_equal(again.uniform(0, 1, size=(2, 2)), last)
    assert (other.uniform(0, 1, size=(2, 2))[1] != last[1]).all()


def test_out_is_filled_in_numpys_order_for_any_layout():
    point = np.arange(6) / 6
    for order in "CF":
        out = np.zeros((2, 3), order=order)
        assert PointGenerator(point, 1).random(out=out) is out
        np.testing.assert_array_equal(out, point.reshape(2, 3))


def test_after_the_reset_numbers_are_of_the_seed_alone():
    expected = np.random.default_rng([5, 2]).normal(size=8)
    for point, draws in ((np.zeros(0), 3), (np.full(64, 0.5), 1), (np.full(4, 0.9), 9)):
        generator = PointGenerator(point, 5)
        first = generator.normal(size=draws)
        kept = generator.normal
        steps = generator.finish()
        assert type(steps) is np.random.Generator
        np.testing.assert_array_equal([*steps.normal(size=4), *kept(size=4)], expected)
        assert np.intersect1d(first, expected).size == 0 and generator.drawn == draws


def test_it_can_be_copied_and_have_children():
    generator = PointGenerator([0.5], 3)
    assert copy.deepcopy(generator).normal() == copy.deepcopy(generator).normal()
    one, other = generator.spawn(2)
    assert one.normal() != other.normal()
