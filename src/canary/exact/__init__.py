"""Ground truth for finite environments: laws of the episode cost, and optima under tail-risk
constraints."""

from canary.exact.distribution import CostLaw as CostLaw
from canary.exact.distribution import cost_law as cost_law
from canary.exact.distribution import mix as mix
from canary.exact.distribution import visits as visits
from canary.exact.linear import best_response as best_response
from canary.exact.mdp import FiniteMDP as FiniteMDP
from canary.exact.mdp import from_environment as from_environment
from canary.exact.optimal import CONSTRAINTS as CONSTRAINTS
from canary.exact.optimal import FrontierPoint as FrontierPoint
from canary.exact.optimal import Infeasible as Infeasible
from canary.exact.optimal import Mixture as Mixture
from canary.exact.optimal import Optimum as Optimum
from canary.exact.optimal import best_under_cantelli as best_under_cantelli
from canary.exact.optimal import best_under_cvar as best_under_cvar
from canary.exact.optimal import best_under_var as best_under_var
from canary.exact.optimal import frontier as frontier
from canary.exact.optimal import markov_policy as markov_policy
