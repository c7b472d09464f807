"""The accountant: it computes what answers cost, in NumPy float64 on the host, and never imports JAX."""

from pate_jax.accounting.answers_statement import AnswersStatement, stable_statement, statement
from pate_jax.accounting.calibrate import Calibrated, calibrate
from pate_jax.accounting.crowd_statement import CrowdStatement, crowd_statement
from pate_jax.accounting.curves import Epsilon, Method, Parts, default_orders, epsilon, published_parts, rdp
from pate_jax.accounting.data_independent import worst_case
from pate_jax.accounting.figures import Figure
from pate_jax.accounting.papers import Published, published, published_text
from pate_jax.accounting.party_statement import PartyStatement, party_statement
from pate_jax.accounting.smooth import Plan, plan, sanitise
from pate_jax.accounting.statement import RELATIONS, Relation, Statement
from pate_jax.accounting.training_statement import TrainingStatement, training_statement

__all__ = [
    "RELATIONS",
    "AnswersStatement",
    "Calibrated",
    "CrowdStatement",
    "Epsilon",
    "Figure",
    "Method",
    "Parts",
    "PartyStatement",
    "Plan",
    "Published",
    "Relation",
    "Statement",
    "TrainingStatement",
    "calibrate",
    "crowd_statement",
    "default_orders",
    "epsilon",
    "party_statement",
    "plan",
    "published",
    "published_parts",
    "published_text",
    "rdp",
    "sanitise",
    "stable_statement",
    "statement",
    "training_statement",
    "worst_case",
]
