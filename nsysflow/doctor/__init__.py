"""What this machine can do, and what to type for what it cannot."""

from nsysflow.doctor.checks import Check, Diagnosis, diagnosed
from nsysflow.doctor.machine import Machine, look
from nsysflow.doctor.page import as_json, page

__all__ = ["Check", "Diagnosis", "Machine", "as_json", "diagnosed", "look", "page"]
