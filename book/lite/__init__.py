"""A JupyterLite site: sections of the numbered notebooks that a browser's Python can
run, made from them by `python -m book.lite`.
"""
