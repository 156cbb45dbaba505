"""`quiesce audit`: does a deployment leak? A black box behind the OpenAI API is asked, and its answers are read."""
