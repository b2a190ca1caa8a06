"""From what people see to what is wrong: symptoms, their causes in order, and the test for each."""

from tilescope.symptoms.cause import CAUSE, Cause
from tilescope.symptoms.question import Diagnosis, diagnose
from tilescope.symptoms.symptom import SYMPTOM, Symptom

__all__ = ["CAUSE", "SYMPTOM", "Cause", "Diagnosis", "Symptom", "diagnose"]
