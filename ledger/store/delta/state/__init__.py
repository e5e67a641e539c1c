"""What a decision looks at: records as arrays, the listing of messages, their states, groups, and what a verb did."""
