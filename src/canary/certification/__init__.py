"""Certificates: what fresh episodes of a frozen policy prove about P(C > limit), at a stated
confidence."""

from canary.certification.certificate import Certificate as Certificate
from canary.certification.certificate import Result as Result
from canary.certification.certificate import to_dict as to_dict
from canary.certification.certify import Subject as Subject
from canary.certification.certify import certify as certify
from canary.certification.certify import shift_grid as shift_grid
from canary.certification.plan import Plan as Plan
from canary.certification.sample_size import clean_episodes as clean_episodes
from canary.certification.sample_size import planned_episodes as planned_episodes
from canary.certification.verdict import Assessment as Assessment
from canary.certification.verdict import Evidence as Evidence
from canary.certification.verification import verify as verify
from canary.numerics.binomial import clopper_pearson_interval as clopper_pearson_interval
from canary.numerics.binomial import clopper_pearson_lower as clopper_pearson_lower
from canary.numerics.binomial import clopper_pearson_upper as clopper_pearson_upper
