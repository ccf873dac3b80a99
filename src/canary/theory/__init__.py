"""Relative variance of the estimators of tail-risk constraints: the paper's theory, exactly
(docs/relative-variance.md)."""

from canary.numerics.gaussian_tail import GaussianTail as GaussianTail
from canary.numerics.gaussian_tail import gaussian_tail as gaussian_tail
from canary.theory.family import soft_policy as soft_policy
from canary.theory.family import with_violation as with_violation
from canary.theory.law import ScoredLaw as ScoredLaw
from canary.theory.law import from_trajectories as from_trajectories
from canary.theory.law import scored_law as scored_law
from canary.theory.plug_in import PlugIn as PlugIn
from canary.theory.plug_in import plug_in_gradient as plug_in_gradient
from canary.theory.plug_in import plug_in_value as plug_in_value
from canary.theory.relative_variance import RelativeVariance as RelativeVariance
from canary.theory.relative_variance import SampledConstraint as SampledConstraint
from canary.theory.relative_variance import cantelli as cantelli
from canary.theory.relative_variance import cvar as cvar
from canary.theory.relative_variance import indicator as indicator
from canary.theory.relative_variance import mean as mean
from canary.theory.relative_variance import of_gradient as of_gradient
from canary.theory.relative_variance import of_value as of_value
