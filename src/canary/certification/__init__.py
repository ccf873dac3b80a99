"""Certificates: statements about the constraint of a frozen policy, proved by fresh episodes at a
stated confidence. `run` certifies a run, `verify` checks a certificate, `best` finds the certified
policy with the highest return."""

from canary.certification.certificate import Result as Result
from canary.certification.certify import certify as certify
from canary.certification.plan import Plan as Plan
from canary.certification.plan import planned_episodes as planned_episodes
