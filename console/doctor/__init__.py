"""`penstock doctor`: looks at what is installed and what the machine offers, and says how to get what is missing."""
