"""Publishing less than the worst case: what draws a bit or a number about the votes, and what that costs."""
