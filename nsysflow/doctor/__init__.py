"""What this machine can do, and what to type for what it cannot.

machine (look) → checks and diagnosis (judge; pure) → page (show).
"""

from nsysflow.doctor.checks import Check
from nsysflow.doctor.diagnosis import Diagnosis, diagnose
from nsysflow.doctor.machine import Machine, look
from nsysflow.doctor.page import as_json, page

__all__ = ["Check", "Diagnosis", "Machine", "as_json", "diagnose", "look", "page"]
