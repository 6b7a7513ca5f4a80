"""The sections of the report, one per file: the data of a study and the template that shows them."""
