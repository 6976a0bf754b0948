"""Teachers: models trained each on its own share of the private data. They vote; they do not predict."""

from terrine.teachers.centroids import CentroidTeacher
from terrine.teachers.ensemble import TeacherEnsemble, fit_teachers, poll_teachers
from terrine.teachers.estimators import SklearnTeacher
from terrine.teachers.modules import ModuleRecipe, ModuleTeacher
from terrine.teachers.nets import ConvTeacher
from terrine.teachers.ridge import RidgeTeacher
from terrine.teachers.stacked import ConvRecipe
from terrine.teachers.teacher import Teacher

__all__ = [
    "CentroidTeacher",
    "ConvRecipe",
    "ConvTeacher",
    "ModuleRecipe",
    "ModuleTeacher",
    "RidgeTeacher",
    "SklearnTeacher",
    "Teacher",
    "TeacherEnsemble",
    "fit_teachers",
    "poll_teachers",
]
