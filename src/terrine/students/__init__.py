"""Students: models trained on public rows and released labels alone. They are what is published."""

from terrine.students.api import (
    FittedStudent,
    Student,
    fit_beside,
    fit_student,
    judged,
    load_student,
    rarely_named,
    warn_of,
)
from terrine.students.auto import AutoStudent
from terrine.students.card import Card, StudentResult
from terrine.students.consistency import MatchStudent, VATStudent
from terrine.students.features import FeatureStudent, FittedOnFeatures, linear_on_features
from terrine.students.gan import GANStudent
from terrine.students.lessons import MissingClassWarning
from terrine.students.nets import Distortion
from terrine.students.neural import FittedNet
from terrine.students.supervised import FittedEstimator, SupervisedStudent
from terrine.students.trial import try_student
from terrine.students.verdict import Verdict

__all__ = [
    "AutoStudent",
    "Card",
    "Distortion",
    "FeatureStudent",
    "FittedEstimator",
    "FittedNet",
    "FittedOnFeatures",
    "FittedStudent",
    "GANStudent",
    "MatchStudent",
    "MissingClassWarning",
    "Student",
    "StudentResult",
    "SupervisedStudent",
    "VATStudent",
    "Verdict",
    "fit_beside",
    "fit_student",
    "judged",
    "linear_on_features",
    "load_student",
    "rarely_named",
    "try_student",
    "warn_of",
]
