"""Reports of a run and of a sweep: what was measured, what the seeds support, as a page, pictures and tables."""
