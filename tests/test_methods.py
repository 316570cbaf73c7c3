"""Methods by name: an objective, a strategy and a model."""

import pytest

import twinrank as tr
from twinrank.experiments.study.method_comparison import METHODS, comparison_study
from twinrank.experiments.study.methods import Method, method
from twinrank.experiments.study.study_source import Source
from twinrank.experiments.study.units import full_parameters


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("AP-type3", Method("AP", "type3", "Small")),
        ("nDCG@10-type1 (R5)", Method("nDCG@10", "type1", "R5")),
        ("AP-type3 (Boosted)", Method("AP", "type3", "Boosted")),
        ("AP-swap (Boosted(ensemble_size=5))", Method("AP", "swap", "Boosted(ensemble_size=5)")),
        (
            "AP-type3 (Boosted(ensemble_size=2, engine=xgboost))",
            Method("AP", "type3", "Boosted(engine=xgboost, ensemble_size=2)"),
        ),
        (" P(rel=2)@5-type2 (MLP(width=8)) ", Method("P(rel=2)@5", "type2", "MLP(width=8)")),
    ],
)
def test_methods_are_read_and_written(name, expected):
    assert method(name) == expected
    assert method(str(expected)) == expected
    assert method(expected) is expected


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("AP", "Cannot read the method 'AP'"),
        ("nDGC-type3", "Unknown measure 'nDGC'. Did you mean 'nDCG'"),
        ("AP-type4", "Unknown strategy 'type4'"),
        ("AP-type3 (CE6)", "Unknown architecture 'CE6'"),
        ("AP-type3 (LambdaMART)", "LambdaMART is a method, not the model of one: write Boosted"),
        ("AP-type3 (Ranker)", "Ranker is a method, not the model of one: write Boosted"),
        (
            "AP-type3 (Boosted(ensemble_size=0))",
            "ensemble_size must be a whole number of at least 1, not 0",
        ),
        ("AP-type3 (Boosted(leaves=3))", "Unknown option of Boosted 'leaves'"),
        ("AP-type3 (Boosted(random_state=3))", "Unknown option of Boosted 'random_state'"),
        ("LambdaMART(leaves=3)", "Unknown option of Boosted 'leaves'"),
        ("LambdaMART(engine=xgboost)", "LambdaMART needs lightgbm; remove engine=xgboost."),
        ("AP-type3 (Small(ensemble_size=0))", "ensemble_size must be a whole number"),
    ],
)
def test_a_method_that_is_none(name, complaint):
    with pytest.raises(tr.InputError) as error:
        method(name)
    assert complaint in str(error.value)


def test_the_name_or_a_parameter_gives_the_ensemble_size():
    source, names = Source.of(None, {}), ("LambdaMART", "AP-type3 (Boosted)")
    names += ("AP-type3 (Boosted(ensemble_size=4))",)

    def sizes(**shared):
        study = comparison_study(source, names, folds=[1], shared=shared)
        return [unit.parameters["ensemble_size"] for unit in study.units]

    assert sizes() == ["auto", 1, 4]  # which is one for LambdaMART
    assert sizes(ensemble_size=3) == ["auto", 3, 4]


@pytest.mark.parametrize(
    ("name", "written", "parameters"),
    [
        ("LambdaMART(num_leaves=7)", "LambdaMART(num_leaves=7)", {"num_leaves": 7}),
        (
            "LambdaMART (Boosted(num_leaves=7, learning_rate=0.1))",
            "LambdaMART(learning_rate=0.1, num_leaves=7)",
            {"num_leaves": 7, "learning_rate": 0.1},
        ),
        (
            "rank:ndcg(num_leaves=7) (XGBoost)",
            "rank:ndcg(num_leaves=7) (XGBoost)",
            {"num_leaves": 7, "engine": "xgboost"},
        ),
        (
            "AP-type3 (Boosted(samples=2, perturbation=0.5))",
            "AP-type3 (Boosted(perturbation=0.5, samples=2))",
            {"samples": 2, "perturbation": 0.5},
        ),
        (
            "AP-type3 (Small(dropout=0.1, epochs=3))",
            "AP-type3 (Small(dropout=0.1, epochs=3))",
            {"epochs": 3, "architecture": "Small(dropout=0.1)"},
        ),
    ],
)
def test_parameters_in_brackets_go_to_the_estimator(name, written, parameters):
    chosen = method(name)
    assert str(chosen) == written
    assert method(written) == chosen
    full = full_parameters(name)
    assert {key: full[key] for key in parameters} == parameters


def test_the_default_methods_exist():
    assert len({method(name) for name in METHODS}) == len(METHODS)


@pytest.mark.parametrize(
    ("name", "expected", "written"),
    [
        ("LambdaMART", Method("LambdaMART", "", "Boosted"), "LambdaMART"),
        ("rank_xendcg (LightGBM)", Method("rank_xendcg", "", "Boosted"), "rank_xendcg"),
        ("rank:ndcg", Method("rank:ndcg", "", "Boosted(engine=xgboost)"), "rank:ndcg (XGBoost)"),
        ("AP-type2 (Boosted)", Method("AP", "type2", "Boosted"), "AP-type2 (Boosted)"),
        (
            "nDCG@5-type3 (Boosted(engine=xgboost))",
            Method("nDCG@5", "type3", "Boosted(engine=xgboost)"),
            "nDCG@5-type3 (Boosted(engine=xgboost))",
        ),
        ("ListNet", Method("ListNet", "", "Small"), "ListNet (Small)"),
        ("ListNet (R4.L)", Method("ListNet", "", "R4.L"), "ListNet (R4.L)"),
    ],
)
def test_methods_of_trees_and_losses(name, expected, written):
    assert method(name) == expected
    assert str(expected) == written
    assert method(written) == expected


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("LambdaMart", "Did you mean 'LambdaMART'"),
        ("LambdaMART (CE4.L)", "LambdaMART needs lightgbm; remove (CE4.L)."),
        ("AP-type3 (Boosted(engine=catboost))", "Unknown engine 'catboost'"),
        ("AP-type3 (Boosted(depth=3))", "depth"),
        ("AP-type3 (Boostedd)", "Unknown model 'Boostedd'"),
        ("ListNet (Boosted)", "a loss for nets"),
        ("ListNet(beta=2)", "beta"),
    ],
)
def test_invalid_methods_of_trees_and_losses(name, complaint):
    with pytest.raises(tr.InputError) as error:
        method(name)
    assert complaint in str(error.value)
