"""The verbs that publish what was measured: tables, figures, the report and the citation."""
