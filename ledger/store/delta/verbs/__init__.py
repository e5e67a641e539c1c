"""What users ask for, decided by the rules over whole lanes at once: each verb is one commit, or none."""
