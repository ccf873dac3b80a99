"""All studies by name: those of the paper first."""

from canary.studies.data import STUDIES, Study
from canary.studies.paper import PAPER_STUDIES

ALL_STUDIES: dict[str, Study] = PAPER_STUDIES | STUDIES
