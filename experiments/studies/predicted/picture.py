"""Pictures of `predicted`."""
