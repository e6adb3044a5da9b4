"""Pictures of an experiment that has several, where they have a file of their own."""
