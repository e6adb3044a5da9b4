"""Published results of a card: what is asked of them, and how a folder of anybody's card becomes one."""
