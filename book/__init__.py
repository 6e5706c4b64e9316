"""The workbook as a web site: `make book` runs the notebooks on this machine and writes
build/book/html.
"""
