"""What users call on a queue and a claim: send, receive, settle, change settings, copy. Input is checked here."""
