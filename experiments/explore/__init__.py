"""The explorer: what each thread of a kernel touches, as data (`traces`) and as a page (`page`)."""
