"""The rung explorer: the page beside the report that shows what each thread of a kernel touches, step by step."""
