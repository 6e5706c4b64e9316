"""The workbook as a website: `make book` runs the notebooks on this machine and writes
build/book/html.
"""
