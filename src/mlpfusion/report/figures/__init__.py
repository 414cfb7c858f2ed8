"""Makes figures of result files: one module a figure, each from records to a Vega-Lite specification."""
