"""The planner as one HTML page that runs trainplan in the reader's browser.

`python -m trainplan.page -o planner.html` writes it. The page loads Pyodide, a Python
for browsers, and asks `answers.reply`; nothing that is typed leaves it.
"""
