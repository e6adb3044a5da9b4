"""The generated tables of the documents: a file for the blocks of each page."""
