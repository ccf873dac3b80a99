"""Certificates: what fresh episodes of a frozen policy prove about its constraint, at a stated
confidence. `run` certifies a run, `verify` checks a certificate, `best` finds the policy with the
highest return that is certified."""

from canary.certification.certificate import Result as Result
from canary.certification.certify import certify as certify
from canary.certification.plan import Plan as Plan
from canary.certification.plan import planned_episodes as planned_episodes
