"""From symptoms to mistakes: symptoms, their causes in order, and the test for each."""

from tilescope.symptoms.symptom_diagnosis import Diagnosis, diagnose
from tilescope.symptoms.tables import CAUSE, ERRORS, SEEN, SYMPTOM, TERMS, Cause, Symptom, Term

__all__ = ["CAUSE", "ERRORS", "SEEN", "SYMPTOM", "TERMS", "Cause", "Diagnosis", "Symptom", "Term", "diagnose"]
